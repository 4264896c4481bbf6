"""Buffers of a model, such as the running statistics of a BatchNorm, beside what is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from anarchic.core.arrays import as_like, copied, norms, places_in, zeros
from anarchic.core.checking import CheckedUpdate, check
from anarchic.core.rule import Rule, S, start, versions_met
from anarchic.core.types import Layout, Rows, Update, Updates, Vector
from anarchic.core.wrappers import StatefulWrapper, WrapperState
from anarchic.errors import ConfigError


@dataclass(slots=True)
class AverageBuffersState(WrapperState[S]):
    """The state of the rule inside, the published model, and the sum of the buffers to come."""

    inner: S  # its parameters are zero where the buffers are
    params: Vector = field()
    total: Vector  # (places,), float64
    count: int  # updates since the last step


@final
@dataclass(frozen=True)
class AverageBuffers(StatefulWrapper[S]):
    """The server averages buffers beside the model and never steps along them.

    At ``places`` (``Layout.buffer_places``) an update's direction holds the worker's buffers b_i
    as they were at the end of its visit, not a difference. The rule inside sees zeros there. When
    it steps, the new version gets, with n the updates since the last step,

        b_{t+1} = (1/n) * sum_i b_i

    Late updates and those of workers with many samples count like any other. It belongs around all
    other wrappers, so that clips, discounts and the guard measure what is trained and nothing else.
    Reference: none; McMahan et al., AISTATS 2017, arXiv:1602.05629, average all of a model, which
    this is for buffers, whatever the rule does with the rest.
    """

    places: Sequence[int] = field(repr=False)  # the layout says them

    def __post_init__(self) -> None:
        found = tuple(int(place) for place in self.places)
        if any(place < 0 for place in found) or len(set(found)) < len(found):
            raise ConfigError("AverageBuffers needs places that differ and are not negative.")
        object.__setattr__(self, "places", found)

    @cached_property
    def _places(self) -> Rows:
        return np.array(self.places, np.intp)

    def init(self, params: Vector) -> AverageBuffersState[S]:
        whole = start(params)
        if len(self.places) and max(self.places) >= len(whole):
            raise ConfigError(
                f"AverageBuffers has a place {max(self.places)}, the model {len(whole)} numbers: "
                "give it the buffer_places of the model's own layout."
            )
        total = zeros(whole, (len(self.places),), double=True)
        return AverageBuffersState(self.rule.init(self._hidden(whole)), whole, total, 0)

    def receive(self, state: AverageBuffersState[S], update: Update) -> AverageBuffersState[S]:
        version, names = state.version, frozenset(update.extras)
        seen: CheckedUpdate = check(update, params=state.params, version=version, extras=names)
        hidden = self._hidden(seen.direction)
        state.inner = self.rule.receive(state.inner, replace(seen, direction=hidden, norm=None))
        self._add(state, update.direction)
        return self.after_step(state) if state.version > version else state

    def receive_many(self, state: AverageBuffersState[S], block: Updates) -> AverageBuffersState[S]:
        versions = versions_met(self.rule, state.inner, block)
        check(block, params=state.params, version=versions, extras=frozenset(block.extras))
        remaining = self.rule.remaining(state.inner)
        # The whole block at once: the rule inside may yet refuse it.
        hidden = replace(block, directions=self._hidden(block.directions))
        state.inner = self.rule.receive_many(state.inner, hidden)
        for row in range(len(block)):
            self._add(state, block.directions[row])
            if row + 1 >= remaining and (row + 1 - remaining) % self.m == 0:
                state = self.after_step(state)
        return state

    def _hidden(self, array: Any) -> Any:
        """A copy of vectors with zeros in the places of the buffers."""
        copy = copied(array)
        copy[..., places_in(array, self._places)] = 0
        return copy

    def _add(self, state: AverageBuffersState[S], direction: Vector) -> None:
        state.total += direction[places_in(direction, self._places)]
        state.count += 1

    def after_step(self, state: AverageBuffersState[S]) -> AverageBuffersState[S]:
        state.params = copied(state.inner.params)
        mean = as_like(state.total / state.count, state.params)
        state.params[places_in(state.params, self._places)] = mean
        state.total[:] = 0
        state.count = 0
        return state


def average_buffers(rule: Rule[Any], layout: Layout) -> Rule[Any]:
    """``AverageBuffers`` around a rule, unless the model has no buffers or it is there already."""
    if not layout.buffers or isinstance(rule, AverageBuffers):
        return rule
    return AverageBuffers(rule, layout.buffer_places.tolist())


def trained_norm(layout: Layout, update: Update) -> float:
    """The norm of what is trained of an update's direction: no step is longer for its buffers."""
    known = getattr(update, "norm", None)  # of a ``CheckedUpdate``, with the buffers
    direction = update.direction
    if layout.buffers:
        direction, known = copied(direction), None
        direction[layout.buffer_places] = 0
    return float(norms(direction[None])[0]) if known is None else float(known)
