"""Any optimiser of ``torch.optim`` as a local rule."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from anarchic.core.arrays import dtype_of, like_that
from anarchic.core.local import Array, Held, LocalRule, VisitStart
from anarchic.core.types import Layout
from anarchic.errors import ConfigError

LOGGER = logging.getLogger("anarchic.train")

# What these do to a number depends on the history of that number alone, so the parameters of many
# visits may stand in one matrix. Tests compare each of them with the loop.
NUMBER_BY_NUMBER = frozenset(
    getattr(torch.optim, name)
    for name in (
        *("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop"),
        *("Rprop", "SGD"),
    )
)


class _HoldsNothing:
    shares: ClassVar[tuple[str, ...]] = ()
    scratch: ClassVar[tuple[str, ...]] = ()
    plain: ClassVar[bool] = False


@final
@dataclass(frozen=True)
class TorchOptimizer(_HoldsNothing):
    """A local step is a step of an optimiser of ``torch.optim``, with eta_L as its rate.

        d_k = (x_k - x_{k+1}) / eta_L

    so K * eta_L * G is the displacement, as it is for SGD. ``optimizer`` is a class, a
    ``functools.partial`` of one (``partial(torch.optim.AdamW, weight_decay=0.1)``), or a function
    of a module, called with the parameters and ``lr``. Its state begins anew with each visit; with
    ``keep_state`` it stays with the worker. Gradients of several visits are computed together.
    Optimisers that work number by number, and keep no state, then step all visits as one matrix;
    others step visit by visit, and a line in the log says so.
    Reference: the optimiser's own. Departs from it in: the state does not outlive a visit, unless
    that is asked for.
    """

    optimizer: Callable[..., Optimizer] = field(repr=False, compare=False)
    keep_state: bool = False
    described: str = field(init=False)  # what recorded runs know it by
    vectors: int = field(init=False, repr=False, compare=False)  # that hold its state

    def __post_init__(self) -> None:
        object.__setattr__(self, "described", _described(self.optimizer))
        numbers = _try(self)
        object.__setattr__(self, "vectors", numbers if self.keep_state else 0)

    @property
    def kind(self) -> Any:
        """The class, or the function that makes one."""
        return getattr(self.optimizer, "func", self.optimizer)

    @property
    def keeps(self) -> tuple[str, ...]:
        return tuple(f"{self.kind.__name__}_{number}" for number in range(self.vectors))

    def begin(self, start: VisitStart) -> LocalRule:
        if self.kind not in NUMBER_BY_NUMBER:
            _check_layout(self, start.layout)
        return _Optimizing(self, start)

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        raise ConfigError("An optimiser belongs to a visit: call begin before the first step.")

    def finish(self, mean: Array, held: Held) -> tuple[Held, Held]:
        raise ConfigError("An optimiser belongs to a visit: call begin before the first step.")


@final
class _Optimizing(_HoldsNothing):
    """The optimisers of one visit, or of lanes of visits."""

    def __init__(self, rule: TorchOptimizer, start: VisitStart) -> None:
        self._rule, self._start, self.keeps = rule, start, rule.keeps
        self._together: _Stepper | None = None  # of all lanes
        self._each: list[_Stepper] = []  # or one per lane

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        here, slope = _tensor(x), _tensor(gradient)
        if self._together is None and not self._each:
            self._begin(here, held)
        if self._together is not None:
            direction = self._together.direction(here, slope)
        else:  # lanes whose visits have ended are the last
            rows = zip(self._each, _rows(here), _rows(slope), strict=False)
            found = [stepper.direction(*lane) for stepper, *lane in rows]
            direction = torch.stack(found).reshape(here.shape)
        return direction.numpy() if isinstance(x, np.ndarray) else direction

    def _begin(self, x: Tensor, held: Held) -> None:
        rule, rates = self._rule, np.unique(self._start.lr)
        reason = _why_not_together(rule, one_rate=len(rates) == 1)
        if x.ndim == 2 and not reason:
            self._together = _Stepper(rule, x, float(rates[0]), None)
            return
        layout = None if rule.kind in NUMBER_BY_NUMBER else self._start.layout
        every = np.broadcast_to(np.ravel(self._start.lr), len(_rows(x))).tolist()
        self._each = [
            _Stepper(rule, row, lr, layout) for row, lr in zip(_rows(x), every, strict=True)
        ]
        if len(self._each) > 1:
            _say_once(f"optimizer steps visit by visit: optimizer={rule.described} {reason=}")
        for lane, stepper in enumerate(self._each if self.keeps else []):
            kept = [_rows(_tensor(held[name]))[lane] for name in self.keeps]
            stepper.load(torch.cat(kept).double().cpu().numpy())

    def finish(self, mean: Array, held: Held) -> tuple[Held, Held]:
        if not self.keeps:
            return {}, {}
        count, like = len(self.keeps), held[self.keeps[0]]
        saved = np.stack([each.saved(count * like.shape[-1]) for each in self._each])
        parts = saved.reshape(len(saved), count, -1)
        kept = {}
        for number, name in enumerate(self.keeps):
            matrix = like_that(parts[:, number].astype(dtype_of(like)), like)
            kept[name] = matrix.reshape(like.shape)
        return kept, {}


class _Stepper:
    """An optimiser and its parameters: the vector or matrix as one, or the tensors of a layout."""

    def __init__(self, rule: TorchOptimizer, x: Tensor, lr: float, layout: Layout | None) -> None:
        self._rule, self._lr = rule, lr
        self._places = None if layout is None else list(_trained(layout))
        self._params = [nn.Parameter(piece.clone()) for piece in self._pieces(x)]
        self._optimizer = rule.optimizer(self._params, lr=lr)

    def _pieces(self, x: Tensor) -> list[Tensor]:
        """Views of ``x``, one for each parameter."""
        if self._places is None:
            return [x]
        return [x[where].view(shape) for where, shape in self._places]

    def direction(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Of one step from ``x``; of a matrix it may be the first rows, once others have ended."""
        if self._places is None and len(x) < len(self._params[0]):
            self._keep_rows(len(x))
        end = x.clone()
        pieces = self._pieces(end)
        for param, value, slope in zip(
            self._params, pieces, self._pieces(gradient.contiguous()), strict=True
        ):
            param.data, param.grad = value.clone(), slope.clone()
        self._optimizer.step()
        for param, piece in zip(self._params, pieces, strict=True):
            piece.copy_(param.data)
        return (x - end) / self._lr

    def _keep_rows(self, count: int) -> None:
        state = self._optimizer.state[self._params[0]]
        for name, value in state.items():
            if isinstance(value, Tensor) and value.ndim == 2:
                state[name] = value[:count]

    def saved(self, size: int) -> NDArray[np.float64]:
        """The state in ``size`` numbers, of which the first says that there is one."""
        numbers = [np.ones(1)]
        for _, _, value in self._state():
            if _as_it_is(value):
                numbers.append(value.detach().double().cpu().numpy().ravel())
            else:  # in four numbers that float32 holds
                numbers.append(np.array([float(value)]).view(np.uint16).astype(np.float64))
        found = np.concatenate(numbers)
        if len(found) > size:
            raise ConfigError(
                f"The state of {self._rule.described} has {len(found)} numbers, and only {size} "
                "can be kept for a model as small as this: use keep_state=False."
            )
        return np.concatenate([found, np.zeros(size - len(found))])

    def load(self, saved: NDArray[np.float64]) -> None:
        """Go on with a state that was saved; with a new one, if there is none."""
        if saved[0] == 0:
            return
        for param in self._params:  # a step makes the state, whose values then are replaced
            param.grad = torch.zeros_like(param)
        self._optimizer.step()
        at = 1
        for state, name, value in self._state():
            if _as_it_is(value):
                part = torch.from_numpy(saved[at : at + value.numel()])
                value.copy_(part.reshape(value.shape))
                at += value.numel()
                continue
            number = float(saved[at : at + 4].astype(np.uint16).view(np.float64)[0])
            state[name] = value.fill_(number) if isinstance(value, Tensor) else type(value)(number)
            at += 4

    def _state(self) -> Iterator[tuple[dict[str, Any], str, Any]]:
        """What the optimiser knows of each parameter, in an order that is always the same."""
        for param in self._params:
            state = self._optimizer.state.get(param, {})
            for name in sorted(state):
                if state[name] is not None:
                    yield state, name, state[name]


def _trained(layout: Layout) -> Iterator[tuple[slice, tuple[int, ...]]]:
    """Where the tensors lie that an optimiser steps: all but the buffers."""
    for (name, where), shape in zip(layout.slices.items(), layout.shapes, strict=True):
        if name not in layout.buffers:
            yield where, shape


def _why_not_together(rule: TorchOptimizer, *, one_rate: bool) -> str:
    """Why the parameters of several visits cannot be one matrix; empty if they can."""
    if rule.kind not in NUMBER_BY_NUMBER:
        return "not known to work number by number"
    if rule.keep_state:
        return "each worker has its own state"
    return "" if one_rate else "the rates of the workers differ"


@cache
def _say_once(text: str) -> None:
    LOGGER.warning(text)


def _as_it_is(value: Any) -> bool:
    """Whether the numbers of a state can be kept among parameters without loss."""
    return isinstance(value, Tensor) and (value.ndim > 0 or value.dtype == torch.float32)


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _tensor(array: Array) -> Tensor:
    return array if isinstance(array, Tensor) else torch.tensor(array)


def _named(optimizer: Any) -> str:
    is_object = isinstance(optimizer, torch.optim.Optimizer)
    return f"an object of {type(optimizer).__name__}" if is_object else repr(optimizer)


def _described(optimizer: Any) -> str:
    """An optimiser in words that are the same in every process: its name and its settings."""
    kind = getattr(optimizer, "func", optimizer)
    name = getattr(kind, "__qualname__", None)
    if not callable(optimizer) or name is None or "<lambda>" in name:
        raise ConfigError(
            f"An optimizer is a class, a functools.partial of one, or a function with a name, such "
            f"as partial(torch.optim.AdamW, weight_decay=0.1); got {_named(optimizer)}."
        )
    settings = dict(getattr(optimizer, "keywords", {}))
    if getattr(optimizer, "args", ()):
        raise ConfigError(
            f"Give the settings of {name} by name, as in partial(torch.optim.SGD, momentum=0.9); "
            f"got {optimizer.args}."
        )
    if "lr" in settings:
        raise ConfigError(
            f"The rate of {name} is that of the worker: give lr={settings['lr']} beside the "
            "optimizer, not in it."
        )
    module = "torch.optim" if getattr(torch.optim, name, None) is kind else kind.__module__
    text = ", ".join(f"{key}={value!r}" for key, value in sorted(settings.items()))
    if " at 0x" in text:
        raise ConfigError(
            f"A setting of {name} has no value that could be recorded with a run ({text}): make "
            "the optimizer in a function of your own, and give that."
        )
    return f"{module}.{name}({text})"


def _try(rule: TorchOptimizer) -> int:
    """Take a step, so that what cannot work is refused now. How many vectors hold the state."""
    like: set[str] = set()
    for shape in ((2, 3), (3,)):
        param = nn.Parameter(torch.ones(shape))
        try:
            optimizer = rule.optimizer([param], lr=1e-3)
            before = _group_numbers(optimizer)
            param.grad = torch.ones(shape)
            optimizer.step()  # LBFGS wants more, and is refused
        except Exception as error:  # whatever an optimiser of somebody else does
            if len(shape) == 1:  # Muon is for matrices alone; a model is looked at when it is known
                continue
            raise _unusable(rule, error) from error
        state = optimizer.state[param]
        like |= {n for n, v in state.items() if isinstance(v, Tensor) and v.shape == param.shape}
        kinds = (Tensor, int, float, type(None))
        strange = [name for name, value in state.items() if not isinstance(value, kinds)]
        strange += ["numbers in its groups"] if _group_numbers(optimizer) != before else []
        if rule.keep_state and strange:
            raise ConfigError(
                f"The state of {rule.described} has {', '.join(strange)}, which cannot be kept "
                "from visit to visit: use keep_state=False."
            )
        if len(shape) == 2 and not state:
            return 0
    return len(like) + 1  # one for what is smaller than the model


def _group_numbers(optimizer: Optimizer) -> list[dict[str, Any]]:
    kinds = (int, float)
    groups = optimizer.param_groups
    return [{n: v for n, v in group.items() if isinstance(v, kinds)} for group in groups]


@cache
def _check_layout(rule: TorchOptimizer, layout: Layout) -> None:
    """Refuse a model whose tensors the optimiser does not take."""
    shapes = [shape for _, shape in _trained(layout)]
    params = [nn.Parameter(torch.empty(shape, device="meta")) for shape in shapes]
    try:
        rule.optimizer(params, lr=1e-3)
    except Exception as error:
        raise _unusable(rule, error) from error


def _unusable(rule: TorchOptimizer, error: Exception) -> ConfigError:
    return ConfigError(
        f"{rule.described} cannot be a local rule, which steps along a dense gradient of all "
        f"parameters ({type(error).__name__}: {error}): use another optimizer."
    )
