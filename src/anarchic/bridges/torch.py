"""A PyTorch training loop as a worker: pull into the model, train in any way, push what changed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from anarchic.bridges.ranks import shared
from anarchic.bridges.steps import listen
from anarchic.bridges.tensors import (
    as_tensor,
    fingerprint,
    named_buffers,
    named_parameters,
    numbers,
    running_statistics,
    unwrapped,
)
from anarchic.bridges.visit import Tensors, Visit, check_fit
from anarchic.core.options import says_options
from anarchic.core.types import EMPTY, Layout, Terms, Vector
from anarchic.errors import ConfigError
from anarchic.worker import Worker

__all__ = ["TorchVisit", "visit"]

KEPT = "buffer:"  # begins the names of buffers in a worker's local state
START = "anarchic init --from module:Model --buffers average"
BY_RATE = ("afa-cd", "afa-cs")  # rules that step by eta_L * G, not by K * eta_L * G
LITTLE = 0.2  # of what a worker did: with less, training looks dead
LOCAL = "keep it with this worker: visit(..., buffers='local')"


@final
class TorchVisit(Visit):
    """A ``Visit`` with a module; ``visit`` makes it and says what it does.

    ``steps`` counts the steps of every optimiser that holds a parameter of the module, ``lr`` is
    their mean rate. Set these at the end of the block where you know better.
    """

    def __init__(
        self,
        worker: Worker | None,
        model: nn.Module,
        train: Callable[[str], bool] | None = None,
        *,
        buffers: Literal["local"] | None = None,
        per_step: bool = False,
        lr: float | None = None,
        samples: int = 0,
    ) -> None:
        if buffers not in (None, "local"):
            raise ConfigError(f"A visit takes buffers='local' or nothing, got {buffers!r}.")
        if not isinstance(model, nn.Module):
            raise ConfigError(f"A visit trains a torch.nn.Module, got a {type(model).__name__}.")
        super().__init__(shared(worker), self._trained_tensors, self._set, lr=lr)
        self._model, self._trains = unwrapped(model), train or (lambda name: True)
        self._buffers, self._per_step = buffers, per_step
        self.samples = samples
        self._rates: list[float] | None = [] if lr is None else None  # of the counted steps
        self._policy: str | None = None  # on buffers
        self._before: dict[str, Tensor] = {}
        self._frozen: dict[str, Tensor | None] = {}
        self._hook: Any = None

    def _begin(self) -> None:
        self._start = None
        super()._begin()
        self.steps = 0
        self._before = {name: each.cpu().clone() for name, each in self._own_buffers().items()}
        self._frozen = self._left_here()
        ours = {id(parameter) for parameter in self._model.parameters()}

        def count(optimizer: Optimizer, args: object, kwargs: object) -> None:
            rate = _rate_of_step(optimizer, ours)
            if rate is not None:
                self.steps = (self.steps or 0) + 1
                if self._rates is not None:
                    self._rates.append(rate)
                    self.lr = fmean(self._rates)

        self._hook = listen(count)

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.cancel()
        super().__exit__(kind, *error)

    def cancel(self) -> None:
        """End without a push."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        self.release()

    def _check(self, layout: Layout) -> None:
        """The model has the server's tensors, the server has what is trained, buffers are clear."""
        check_fit(layout, self._trained_tensors())
        for name, each in self._not_sent().items():
            if each.requires_grad:
                raise ConfigError(
                    f"The model trains {name}, which the server's model has not: freeze it, or say "
                    "with train= what travels."
                )
        self._policy = self._checked_policy(layout)

    @property
    def _terms(self) -> Terms:
        assert self._snapshot is not None
        return self._snapshot.terms

    def _checked_policy(self, layout: Layout) -> str | None:
        policy = self._terms.buffers
        if policy == "average":
            return policy
        if held := [name for name in named_buffers(self._model) if name in layout.slices]:
            raise ConfigError(
                f"The server's model has the buffer {held[0]} among its trained tensors, so that a "
                f"step would subtract it. Start the run with {START}."
            )
        if "local" in (policy, self._buffers):
            return "local"
        if running := running_statistics(self._model):
            raise ConfigError(
                f"Training changes the buffer {running[0]}, and the run does not say what becomes "
                f"of buffers. Start it with {START}, or {LOCAL}."
            )
        return policy

    def _tensors(self) -> dict[str, Tensor]:
        """Looked up anew each time: ``model.to(device)`` replaces buffers."""
        return {**named_buffers(self._model), **named_parameters(self._model)}

    def _trained_tensors(self) -> Tensors:
        """The server's tensors as they are here; what this worker does not train, as pulled."""
        layout, found = self.worker.layout, self._tensors()
        here = {name: numbers(found[name]) for name in layout.names if name in found}
        if self._start is not None:
            pulled = layout.split(self._start).items()
            here |= {n: v for n, v in pulled if n not in layout.buffers and not self._trains(n)}
        return here

    @torch.no_grad()
    def _set(self, tensors: Tensors) -> None:
        kept = _kept(self.worker.local_state()) if self._policy == "local" else {}
        found = self._tensors()
        for name, array in {**kept, **tensors}.items():
            if name in found and tuple(found[name].shape) == array.shape:
                found[name].copy_(as_tensor(array, found[name].dtype))

    def _own_buffers(self) -> dict[str, Tensor]:
        """The buffers that the server does not have."""
        sent = self.worker.layout.slices
        return {n: each for n, each in named_buffers(self._model).items() if n not in sent}

    def _not_sent(self) -> dict[str, Tensor]:
        """Parameters that the server does not have, but for those that ``train`` excludes."""
        parameters, there = named_parameters(self._model), self.worker.layout.slices
        sent = {id(each) for name, each in parameters.items() if name in there}
        return {n: p for n, p in parameters.items() if self._trains(n) and id(p) not in sent}

    def _left_here(self) -> dict[str, Tensor | None]:
        return {name: fingerprint(each) for name, each in self._not_sent().items()}

    def _check_frozen(self) -> None:
        """Refuse a change of a frozen parameter, which would be lost in silence."""
        for name, now in self._left_here().items():
            before = self._frozen.get(name)
            if now is not None and before is not None and not torch.equal(now, before):
                raise ConfigError(
                    f"The frozen parameter {name} changed in the block, and the server's model has "
                    "not got it, so nothing was pushed. Leave it as it is, give it to the server "
                    "too, or say with train= that it is this worker's own."
                )

    def _changed_buffers(self) -> dict[str, Tensor]:
        before = self._before
        return {
            name: each
            for name, each in self._own_buffers().items()
            if name not in before or not torch.equal(each.cpu(), before[name])
        }

    def _push(self) -> None:
        if not getattr(self.worker, "first", True):  # of several processes
            return
        if self._policy != "local" and (changed := self._changed_buffers()):
            local = "" if self._policy == "average" else f", or {LOCAL}"
            raise ConfigError(
                f"Training changed the buffer {next(iter(changed))}, which the run does not name, "
                f"so nothing was pushed. Start the run with {START} --buffer-names REGEX{local}."
            )
        self._check_frozen()
        loss: Any = self.loss
        if isinstance(loss, Tensor) and loss.numel() == 1:
            self.loss = float(loss.detach())
        super()._push()

    def _local_state(self) -> Mapping[str, Vector]:
        if self._policy != "local":
            return EMPTY
        own = {KEPT + name: numbers(each) for name, each in self._changed_buffers().items()}
        return {**self.worker.local_state(), **own}

    def _steps_and_rate(self) -> tuple[int, float]:
        if self._per_step and self.lr is None:
            raise ConfigError("per_step divides by the rate, and no step was counted: give lr=.")
        steps, lr = (self._counted(), self.lr or 0.0) if self._per_step else (1, 1.0)
        if told := shrinks(self._terms, steps):
            warnings.warn(told, stacklevel=6)  # where the with block is
        return steps, lr


@says_options
def visit(
    worker: Worker | None,
    model: nn.Module,
    train: Callable[[str], bool] | None = None,
    *,
    buffers: Literal["local"] | None = None,
    per_step: bool = False,
    lr: float | None = None,
    samples: int = 0,
) -> TorchVisit:
    """Pull the server's model into ``model``; on leaving the block, push what changed.

    The update holds the whole displacement, start minus end, so that a server step of rate 1 moves
    by the mean of what the workers did, with whatever optimiser and however many steps. An
    exception inside the block pushes nothing. The server's tensors are found in the model by name;
    what the server does not have stays in the model as it is.

    ``train`` says by name which tensors this worker trains: others are pulled and sent unchanged.
    ``buffers="local"`` keeps running statistics with this worker in a run that says nothing about
    them. ``per_step`` sends the paper's G = (start - end) / (K * lr) instead, with K steps at rate
    ``lr``, which is counted if it is not given. ``samples`` is how many this worker holds. Where
    several processes train one model (DDP), the first one talks to the server, and ``worker`` may
    be None in the others. Your optimiser keeps its state: the parameters change under it.
    """
    more: dict[str, Any] = {"buffers": buffers, "per_step": per_step, "lr": lr, "samples": samples}
    return TorchVisit(worker, model, train, **more)


def shrinks(terms: Terms, steps: int) -> str | None:
    """A sentence if a server step keeps little of what a worker did in ``steps`` steps."""
    if terms.rule is None or terms.server_lr is None:
        return None
    divided = steps if terms.rule in BY_RATE else 1
    if (part := terms.server_lr / divided) >= LITTLE:
        return None
    remedy = "push the whole displacement (per_step=False), or " if divided > 1 else ""
    return (
        f"The server's rule ({terms.rule}, server_lr={terms.server_lr:g}) moves the model by only "
        f"{part:.2g} times what this worker did: {remedy}have the run started with --server-lr "
        f"{divided}."
    )


def _kept(state: Mapping[str, Vector]) -> Mapping[str, Vector]:
    return {name.removeprefix(KEPT): v for name, v in state.items() if name.startswith(KEPT)}


def _rate_of_step(optimizer: Optimizer, ours: set[int]) -> float | None:
    """The rate of a step that an optimiser has taken, if it holds one of our parameters."""
    skipped = getattr(optimizer, "found_inf", None)  # a fused step under a GradScaler
    if skipped is not None and bool(skipped):
        return None
    for group in optimizer.param_groups:
        if any(id(parameter) in ours for parameter in group["params"]):
            return float(group["lr"])
    return None
