"""Whether a module does the same with the same numbers, whatever it was called with before.

What it keeps from one call to the next outside of buffers would be lost between visits, and shared
by visits that are computed together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from anarchic.errors import ConfigError
from anarchic.train.attributes import GeneratorState, changed, generators, kept_in, same
from anarchic.train.engines import Objective, copy_of

NEAR = 1e-2  # relative: two ways to one gradient are this near, in float32 and on a GPU, too
# Relative: two calls differ by no more where threads add numbers up in another order.
ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-12}


@dataclass
class _Call:
    results: list[Tensor]
    kept: dict[str, Any]
    drew: bool  # by Python's or NumPy's own generator


class Trials:
    """Calls on samples a, b and a again ``here``, and on b alone ``apart``, by a fresh copy."""

    def __init__(self, whole: Objective) -> None:
        self._module = whole.module
        self.fresh = replace(whole, module=copy_of(whole.module))
        self._here: list[_Call] = []
        self._apart: list[_Call] = []
        self._roots = {
            id(each): _roots(one) for each, one in ((self._here, whole), (self._apart, self.fresh))
        }

    def here(self) -> AbstractContextManager[list[Tensor]]:
        return self._one(self._here)

    def apart(self) -> AbstractContextManager[list[Tensor]]:
        return self._one(self._apart)

    @contextmanager
    def _one(self, calls: list[_Call]) -> Iterator[list[Tensor]]:
        """Around a call, whose results are added to what this gives."""
        before, results = generators(), list[Tensor]()
        yield results
        calls.append(_Call(results, kept_in(*self._roots[id(calls)]), generators() != before))

    def check(self) -> None:
        """Refuse a module that remembers."""
        module, (first, second, third), (alone,) = self._module, self._here, self._apart
        if all(call.drew for call in (first, second, third, alone)):
            raise ConfigError(
                f"{_kind(module)} draws from Python's or NumPy's own random numbers: a visit could "
                "not be repeated. Draw by torch, such as torch.rand."
            )
        for one, other in ((first, third), (second, alone)):
            if found := changed(one.kept, other.kept):
                raise ConfigError(_told(module, *next(iter(found.items()))))
            if not all(map(same, one.results, other.results)):
                _check_near(module, one.results[0], other.results[0])


def _roots(objective: Objective) -> tuple[Any, ...]:
    """What is called, and may keep something."""
    given = (objective.forward, objective.loss)
    return objective.module, *(each for each in given if each is not None)


def _told(module: nn.Module, name: str, value: Any) -> str:
    if isinstance(value, GeneratorState):
        return (
            f"{_kind(module)} draws from {name!r}, whose numbers go on from call to call: a visit "
            "could not be repeated. Draw by torch, such as torch.rand."
        )
    buffer = f"self.register_buffer({name.rpartition('.')[2]!r}, torch.zeros(...))"
    return (
        f"{_kind(module)} keeps {name!r} from one call to the next, in an attribute or variable "
        "that is no buffer: it would be lost between visits, which could not be repeated. Make it "
        f"a buffer, with {buffer}, and give the task a policy, such as buffers='average'; or leave "
        "it out if nothing depends on it."
    )


def _check_near(module: nn.Module, one: Tensor, other: Tensor) -> None:
    near = ROUNDING.get(one.dtype, NEAR) if one.device.type == "cpu" else NEAR
    if (one - other).abs().max() > near * one.abs().max():
        raise ConfigError(
            f"{_kind(module)} gives two results for the same parameters and inputs: it draws "
            "random numbers that are not torch's, or keeps something from one call to the next. A "
            "visit could not be repeated: draw by torch, and keep nothing but buffers."
        )


def _kind(module: nn.Module) -> str:
    return type(module).__name__
