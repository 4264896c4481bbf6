"""A look at a module before it is trained: what it needs, and what would go wrong.

One training step on two samples shows which random operators a module has, which buffers change,
and whether lanes of it can be computed as one batch.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from anarchic.core.types import Layout
from anarchic.errors import ConfigError
from anarchic.models.unregistered import unregistered
from anarchic.train.attributes import attributes, same
from anarchic.train.engines import Objective, copy_of, drawing, refuse_written
from anarchic.train.noise import CannotBatch
from anarchic.train.repeats import NEAR, Trials

LOGGER = logging.getLogger("anarchic.train")
Batch = tuple[Tensor, Any]  # inputs and targets


@dataclass(frozen=True)
class Probed:
    """What a training step of a module does beside giving a gradient."""

    draws: bool = False  # random numbers
    always: bool = False  # it draws in eval mode, too
    buffers: tuple[str, ...] = ()  # that change


def trained_parameters(
    module: nn.Module, train: Callable[[str], bool] | None
) -> dict[str, nn.Parameter]:
    """Those that are trained, by name; the others are frozen. Tied ones have their first name."""
    named = dict(module.named_parameters())
    if train is not None:
        aliases = list(module.named_parameters(remove_duplicate=False))
        chosen = {id(parameter) for name, parameter in aliases if train(name)}
        for parameter in named.values():
            parameter.requires_grad_(id(parameter) in chosen)
    trained = {name: each for name, each in named.items() if each.requires_grad}
    if not trained and train is not None and named:
        raise ConfigError(
            f"train= selects none of the {len(named)} parameters of {_kind(module)}: "
            f"{_listed(named)}."
        )
    if not trained:
        raise ConfigError(f"{_kind(module)} has no parameter that requires a gradient.")
    return trained


def check_module(module: nn.Module) -> None:
    """Refuse what cannot be trained in a vector, whatever the data."""
    check_is_module(module)
    for name, part in module.named_modules():
        _check_wrapped(name, part)
        if isinstance(part, nn.Embedding | nn.EmbeddingBag):
            wrong = "sparse=True" if part.sparse else f"max_norm={part.max_norm}"
            if part.sparse or part.max_norm is not None:
                raise ConfigError(
                    f"Module {name!r} is an nn.{_kind(part)} with {wrong}, whose gradients or "
                    "weights are not those of a dense tensor: leave that out."
                )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if nn.parameter.is_lazy(tensor):
            raise ConfigError(
                f"{name!r} of {_kind(module)} has no shape yet: call the module once on a batch, "
                "then make the task."
            )
        if tensor.is_meta:
            raise ConfigError(
                f"{name!r} of {_kind(module)} is on the meta device, where there are no numbers: "
                "make the module on the CPU, or call module.to_empty(device='cpu') and set its "
                "tensors."
            )
        if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
            raise ConfigError(
                f"{name!r} of {_kind(module)} has a hook for its gradient (register_hook), which "
                "would not be called: remove it, and change the gradient in a local rule."
            )
        if tensor.is_complex():
            raise ConfigError(
                f"{name!r} of {_kind(module)} is complex: keep its real and imaginary parts as two "
                "real tensors."
            )

    _check_finite(module)


def check_is_module(module: object) -> None:
    """Refuse what is no module, such as its class."""
    if isinstance(module, type):
        raise ConfigError(f"{module.__name__} is a class: give a module, {module.__name__}(...).")
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"A task trains a torch.nn.Module, got a {type(module).__name__}: give the module."
        )


def _check_wrapped(name: str, part: nn.Module) -> None:
    """Refuse what is around the module that is meant, and cannot be copied or batched."""
    where = f"Module {name!r}" if name else "The module"
    if isinstance(part, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise ConfigError(
            f"{where} is a {_kind(part)}, which spreads batches over devices: give the module in "
            "it, its .module."
        )
    if isinstance(part, torch.jit.ScriptModule):
        raise ConfigError(
            f"{where} is compiled by torch.jit, so it cannot be looked into: give the module that "
            "was scripted or traced."
        )


def _check_finite(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        wrong = int((~parameter.detach().isfinite()).sum())
        if wrong:
            raise ConfigError(
                f"{name!r} of {_kind(module)} holds NaN or infinity in {wrong:,} of "
                f"{parameter.numel():,} places: initialise it, or load finite numbers."
            )


def look_at(
    objective: Objective, first: Batch, second: Batch, key: Tensor
) -> tuple[Probed, Objective]:
    """What a training step does; the objective without channels last if it does not work so.

    Images with channels last are faster, but the outputs of layers then refuse ``view``.
    """
    if objective.channels_last:
        try:
            return look(objective, first, second, key), objective
        except ConfigError:
            objective = replace(objective, channels_last=False)
    return look(objective, first, second, key), objective


def look(objective: Objective, one: Batch, other: Batch, key: Tensor) -> Probed:
    """Take training steps on copies of the module, and see what they do."""
    module = deepcopy(objective.module)
    named = dict(module.named_parameters())
    trained = {
        name: named[name].detach().clone().requires_grad_() for name in objective.layout.names
    }
    # A teacher that begins as its student changes only once the student has.
    moved = {name: (1.01 * each.detach()).requires_grad_() for name, each in trained.items()}
    first = {name: buffer.clone() for name, buffer in module.named_buffers()}
    given = first | {name: named[name].detach().clone() for name in named.keys() - trained.keys()}
    # Without buffers in the layout it hands the module the very tensors that it is given.
    whole = replace(objective, module=module)
    trials, written, drawn = Trials(whole), set[str](), 0
    for trial, take, params, batch in (
        (whole, trials.here, trained, one),
        (whole, trials.here, moved, other),
        (whole, trials.here, trained, one),
        (trials.fresh, trials.apart, moved, other),
    ):
        with drawing(key, trial.module) as seen, take() as results:
            found, after, wrote = _step(trial, params, given, *batch)
            results += found
        drawn += 0 if seen is None else seen.drawn
        written |= wrote | {name for name in given if not same(given[name], after[name])}
    trials.check()
    _check_registered(whole, {**trained, **_clones(given)}, *one)
    with drawing(key, module):
        # From the second step on other buffers may change, such as a flag and then a mean.
        _, again, later = _step(whole, moved, after, *other)
    written |= later | {name for name in given if not same(given[name], again[name])}
    refuse_written(module, [name for name in named if name in written])
    moving = [name for name in first if name in written]
    for name in moving:
        if first[name].shape != again[name].shape:
            raise ConfigError(
                f"Buffer {name!r} of {_kind(module)} changes its shape from "
                f"{tuple(first[name].shape)} to {tuple(again[name].shape)} while it is trained: "
                "give it one shape, or keep it in an attribute that is no buffer."
            )
    tensors = {**trained, **given}
    return Probed(
        drawn > 0, _draws_always(objective, tensors, (one[0], other[0]), key), tuple(moving)
    )


def _draws_always(
    objective: Objective, tensors: dict[str, Tensor], inputs: tuple[Tensor, Tensor], key: Tensor
) -> bool:
    """Whether the module draws in eval mode, too; one that remembers there is refused."""
    one, other = inputs
    whole = replace(objective, module=copy_of(objective.module))
    trials, drawn = Trials(whole), 0
    for trial, take, x in (
        (whole, trials.here, one),
        (whole, trials.here, other),
        (whole, trials.here, one),
        (trials.fresh, trials.apart, other),
    ):
        trial.module.eval()
        with torch.no_grad(), drawing(key, trial.module) as seen, take() as results:
            results += [trial.outputs(_clones(tensors), x)]
        drawn += 0 if seen is None else seen.drawn
    trials.check()
    return drawn > 0


def _check_registered(objective: Objective, tensors: dict[str, Tensor], x: Tensor, y: Any) -> None:
    """Refuse parameters in plain attributes that would be trained if torch knew of them."""
    hidden = unregistered(objective.module)
    if not hidden:
        return
    loss = objective.plain_value(tensors, x, y)
    found = torch.autograd.grad(loss, list(hidden.values()), allow_unused=True)
    used = [name for name, each in zip(hidden, found, strict=True) if each is not None]
    if used:
        raise ConfigError(
            f"{_kind(objective.module)} keeps parameters in {used[0]!r}, where torch does not find "
            "them, so they would not be trained: put layers into an nn.ModuleList or nn.ModuleDict "
            "and parameters into an nn.ParameterList, or call requires_grad_(False) on them if "
            "they are to stay as they are."
        )


def _step(
    objective: Objective, trained: dict[str, Tensor], given: dict[str, Tensor], x: Tensor, y: Any
) -> tuple[list[Tensor], dict[str, Tensor], set[str]]:
    """A training step: loss and gradients, what was given as it is afterwards, what was written to.

    A write counts where it leaves the value as it was: with other samples it might not.
    """
    tensors = {**trained, **_clones(given)}
    before = {name: (tensor, *_place(tensor)) for name, tensor in tensors.items()}
    try:
        loss = objective.plain_value(tensors, x, y)
        found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    except ConfigError:
        raise
    except Exception as error:  # of any kind: module and loss are the user's
        raise ConfigError(
            f"{_kind(objective.module)} cannot take a training step on inputs of shape "
            f"{tuple(x.shape)} ({x.dtype}) and targets of shape {tuple(y.shape)} ({y.dtype}): "
            f"{_first_line(error)} If it returns more than the loss takes, give TorchTask a "
            "forward=, such as forward=lambda module, x: module(x)[0]."
        ) from error
    if all(each is None for each in found):
        raise ConfigError(
            f"The loss depends on none of the {len(found)} trained parameters of "
            f"{_kind(objective.module)}: let forward=, if it is given, call the module that it "
            "gets, which is a copy."
        )
    written = {
        name
        for name, (tensor, *place) in before.items()
        if tensors[name] is not tensor or place != [*_place(tensor)]
    }
    results = [loss.detach(), *(each for each in found if each is not None)]
    return results, {name: tensors[name].detach() for name in given}, written


def _clones(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _place(tensor: Tensor) -> tuple[int, int]:
    """It changes with writes in place, and where ``.data`` is replaced."""
    return tensor._version, tensor.data_ptr()


def refuse_buffers(module: nn.Module, changed: tuple[str, ...]) -> None:
    """Say which module or buffer would be lost, and the ways to keep it."""
    owner, _, buffer = changed[0].rpartition(".")
    part = module.get_submodule(owner)
    what = f"Buffer {buffer!r} of module {owner!r}, a {_kind(part)}, changes"
    if isinstance(part, nn.modules.batchnorm._NormBase):
        what = f"Module {owner!r} is a {_kind(part)}: its running statistics change"
    raise ConfigError(
        f"{what} outside the gradient and would not reach the server. Let the server average them "
        'with buffers="average", let each worker keep its own with buffers="local", or use '
        "nn.GroupNorm instead."
    )


def why_alone(
    objective: Objective, params: Tensor, x: Tensor, y: Tensor, keys: Tensor | None
) -> str | None:
    """Why lanes of the module cannot be computed as one batch; None if they can."""
    trial = replace(objective, module=copy_of(objective.module))
    try:
        with _every_warning() as said:
            found = trial.all_at_once(params, x, y, keys)
    except CannotBatch as error:
        return str(error)
    except Exception as error:  # whatever vmap makes of the user's module
        return _reason(error.__cause__ or error)
    for warning in said:
        if "batching rule for" in str(warning.message):
            missing = str(warning.message).split("batching rule for ")[1].split(". ")[0]
            return f"torch cannot batch {missing}"
    trial = replace(objective, module=copy_of(objective.module))
    alone = trial.one_by_one(params, x, y, keys)
    if not (found - alone).norm() <= NEAR * alone.norm():
        return "a batch of visits gives other gradients"
    return None


def say_alone(module: nn.Module, why: str) -> None:
    """One line per model and reason, however many tasks are made of it."""
    _say(f"{_kind(module)} is computed one visit after another, which is slower: {why}.")


@cache
def _say(line: str) -> None:
    LOGGER.warning(line)


def _reason(error: BaseException) -> str:
    said = str(error)
    if ".item()" in said or "data-dependent" in said or "dynamic shape" in said:
        return "the values of a tensor decide what it does (an if, .item(), a boolean mask)"
    return f"torch cannot batch it ({_first_line(error).rstrip('.')})"


@contextmanager
def _every_warning() -> Iterator[list[warnings.WarningMessage]]:
    """Record what torch warns of, also what it has said before."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield said
    finally:
        torch.set_warn_always(before)


def likeness(module: nn.Module, trained: Layout) -> Hashable:
    """Equal for modules that compute the same, given the same trained tensors; never too often."""
    parts = [
        (name, type(part), tuple((key, _likeness(value)) for key, value in attributes(part)))
        for name, part in module.named_modules()
    ]
    kept = [
        (name, tensor.detach().cpu().numpy().tobytes())
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
        if name not in trained.slices
    ]
    return tuple(parts), tuple(kept)


def _likeness(value: Any) -> Hashable:
    if isinstance(value, bool | int | float | str | type(None) | torch.dtype | torch.device):
        return value
    if isinstance(value, tuple | list):
        return tuple(map(_likeness, value))
    if isinstance(value, dict | set) and not value:  # no hooks
        return ()
    return id(value)  # a function, or what cannot be compared


def _kind(module: nn.Module) -> str:
    return type(module).__name__


def _listed(names: Any, most: int = 5) -> str:
    some = [repr(name) for name in names]
    return ", ".join(some[:most]) + (" and so on" if len(some) > most else "")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    text = f"{type(error).__name__}: {lines[0]}" if lines[0] else type(error).__name__
    return text if text.endswith(".") else f"{text}."
