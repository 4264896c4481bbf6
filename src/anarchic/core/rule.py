"""The seam between an algorithm and whoever runs it: a server process or a simulator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from anarchic.core.arrays import all_finite, as_like, copied, is_floating
from anarchic.core.checking import check
from anarchic.core.rows import WorkerRows
from anarchic.core.types import EMPTY, Integers, Update, Updates, Vector
from anarchic.errors import ConfigError
from anarchic.kernels import loops

if TYPE_CHECKING:
    from anarchic.core.guard import GuardRecord


class State(Protocol):
    """The moving numbers of a rule. ``params`` and ``extras`` are what workers pull."""

    @property
    def params(self) -> Vector: ...
    @property
    def version(self) -> int: ...
    @property
    def extras(self) -> Mapping[str, Vector]: ...


S = TypeVar("S", bound=State)


class Rule(Protocol[S]):
    """Frozen settings plus the fold of updates into a state, and what a runner must know of both.

    A call consumes the state that it is given (buffers are reused) and returns the next one. It
    never writes to an update, nor to parameters that were published: a step makes new ones.
    ``receive`` checks before it changes anything, so a refused update leaves the state usable.
    ``SteppingRule`` derives most of this from ``fold`` and ``next_params``.
    """

    @property
    def m(self) -> int:
        """How many updates make a step."""

    @property
    def takes_late(self) -> bool:
        """Whether it folds an update however late it is: a server runs no other rules."""

    @property
    def remembers(self) -> int | None:
        """Of how many workers it keeps something at most: 0 of none, None of all that come."""

    @property
    def innermost(self) -> Rule[Any]:
        """The rule inside all wrappers: itself, if there are none."""

    def init(self, params: Vector) -> S:
        """The state at version 0."""

    def receive(self, state: S, update: Update) -> S:
        """Fold one update, stepping if it was the last one that a step needs."""

    def receive_many(self, state: S, block: Updates) -> S:
        """The same fold over a block, to the same bytes; refuses the block as a whole."""

    def scale(self, local_lr: float, local_steps: int) -> float:
        """What the rule multiplies a fresh update's direction by before it takes the mean."""

    def folded_scale(self, local_lr: float, local_steps: int, staleness: int, norm: float) -> float:
        """What it multiplies this update's direction by, of that norm, after discounts and clips.

        A guard is left out, for it depends on the updates before: see ``guard_record``.
        """

    def remaining(self, state: S) -> int:
        """How many more updates until the next step; at least 1."""

    def flush(self, state: S) -> S:
        """Step now with what has arrived since the last step; nothing if that is nothing."""

    def forget(self, state: S, worker: str) -> bool:
        """Drop, in place, what is kept of a worker; whether there was anything."""

    def rows(self, state: S) -> dict[str, WorkerRows]:
        """The parts of a state that a store may keep row by row, by their names when packed.

        They change rarely: an update touches the row of its worker and no other.
        """

    def guard_record(self, state: S) -> GuardRecord | None:
        """What the guard around the rule has seen, or None where there is no guard."""


@dataclass
class RuleState:
    """What the state of a ``SteppingRule`` has; a rule adds fields of its own, with defaults."""

    params: Vector
    version: int = 0
    count: int = 0  # updates since the last step
    extras: Mapping[str, Vector] = field(default_factory=lambda: EMPTY)


class SteppingRule(ABC, Generic[S]):
    """A rule that steps every ``m`` updates, from the least that a rule must say.

    A subclass is a frozen dataclass with ``m`` and says ``fold``, ``next_params`` and, where its
    state is more than a ``RuleState``, ``begin``. A state counts in ``count`` the updates since
    the last step. Its fields that are ``WorkerRows`` are stored row by row and forgotten by worker.
    """

    __slots__ = ()
    takes_late: ClassVar[bool] = True
    synchronous: ClassVar[bool] = False  # in continuous time: rounds that wait for the slowest

    if TYPE_CHECKING:  # a field of the subclass

        @property
        def m(self) -> int: ...

    @abstractmethod
    def fold(self, state: Any, update: Update) -> None:
        """Take up one update that was checked, in place."""

    @abstractmethod
    def next_params(self, state: Any) -> Vector:
        """New parameters from what was folded since the last step, which is then cleared."""

    @property
    def innermost(self) -> Rule[Any]:
        return self

    def begin(self, params: Vector) -> Any:
        """The state at version 0; ``params`` are the rule's own."""
        return RuleState(params)

    def init(self, params: Vector) -> Any:
        return self.begin(start(params))

    def oldest(self, version: Any) -> Any:
        """The oldest base version that is taken at ``version``, a number or an array of them."""
        return 0 * version

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr

    def folded_scale(self, local_lr: float, local_steps: int, staleness: int, norm: float) -> float:
        return self.scale(local_lr, local_steps)

    def receive(self, state: Any, update: Update) -> Any:
        version = state.version
        seen = check(update, params=state.params, version=version, oldest=self.oldest(version))
        return self._take(state, seen)

    def receive_many(self, state: Any, block: Updates) -> Any:
        versions = versions_met(self, state, block)
        check(block, params=state.params, version=versions, oldest=self.oldest(versions))
        for row in range(len(block)):
            state = self._take(state, block.row(row))
        return state

    def _take(self, state: Any, update: Update) -> Any:
        self.fold(state, update)
        state.count += 1
        return self.flush(state) if state.count == self.m else state

    def remaining(self, state: Any) -> int:
        return int(self.m - state.count)

    def flush(self, state: Any) -> Any:
        if state.count == 0:
            return state
        state.params = as_like(self.next_params(state), state.params)
        state.version += 1
        state.count = 0
        return state

    @property
    def waits(self) -> str | None:
        """How a worker that stays away can hold up steps, and what bounds that; None if it cannot.

        Not a member of ``Rule``: few rules have to say it.
        """
        return None

    @property
    def remembers(self) -> int | None:
        return None if self.rows(self.init(np.zeros(1, np.float32))) else 0

    def forget(self, state: Any, worker: str) -> bool:
        found = [rows for rows in self.rows(state).values() if worker in rows]
        for rows in found:
            rows.remove(worker)
        return bool(found)

    def rows(self, state: Any) -> dict[str, WorkerRows]:
        values = {each.name: getattr(state, each.name) for each in fields(state)}
        return {name: value for name, value in values.items() if isinstance(value, WorkerRows)}

    def guard_record(self, state: Any) -> GuardRecord | None:
        return None


def start(params: Vector) -> Vector:
    """A copy of a model's first parameters, which must be one vector of finite floats."""
    if params.ndim != 1 or not is_floating(params):
        raise ConfigError(
            f"The parameters have shape {params.shape} and dtype {params.dtype}; a rule works on "
            "one vector of floats: see Layout.join."
        )
    if not all_finite(params):
        raise ConfigError("The first parameters are not all finite: initialise the model anew.")
    loops.prepare(params)
    copy: Vector = copied(params)
    return copy


def versions_met(rule: Rule[S], state: S, block: Updates) -> Integers:
    """The version that each update of a block meets."""
    before = rule.m - rule.remaining(state)  # updates that have arrived since the last step
    return state.version + (before + np.arange(len(block))) // rule.m
