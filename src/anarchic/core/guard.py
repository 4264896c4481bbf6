"""A guard against updates far longer than those of the other workers.

Nobody has to say how long an update may be: the workers themselves show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, final

import numpy as np
from numpy.typing import NDArray

from anarchic.core.arrays import copied, norms, times
from anarchic.core.checking import check
from anarchic.core.rows import WorkerRows
from anarchic.core.rule import S, versions_met
from anarchic.core.types import Matrix, Update, Updates, Vector
from anarchic.core.wrappers import LEAST, Wrapper
from anarchic.errors import ConfigError

FACTOR = 30.0  # experiments/guard: honest lengths reach 12 times the scale
WORKERS = 64  # whose lengths are kept: the median needs no more
FADE = 0.9  # per update of a worker, of what it sent before
FEW = 3  # workers: among fewer, one that is wrong is no minority
MANY = 8  # workers: before that the first few to be heard may be the wrong ones


@final
class Lengths:
    """How long the updates of the workers heard last are: one number per worker."""

    def __init__(self, known: Mapping[str, float] | None = None) -> None:
        self._known = dict(known or {})  # the last heard last

    def __len__(self) -> int:
        return len(self._known)

    def copy(self) -> Lengths:
        return Lengths(self._known)

    def hear(self, worker: str, length: float) -> None:
        """Take up an update. One of length zero says nothing about a scale."""
        if not 0 < length < np.inf:
            return
        before = self._known.pop(worker, 0.0)
        self._known[worker] = max(length, FADE * before)
        if len(self._known) > WORKERS:
            del self._known[next(iter(self._known))]

    def forget(self, worker: str) -> bool:
        return self._known.pop(worker, None) is not None

    def scale(self, first: float) -> float:
        """The lower median, with ``first`` in its place until enough workers were heard."""
        heard = len(self._known)
        if heard < FEW:
            return first
        median = sorted(self._known.values())[(heard - 1) // 2]
        return median if heard >= MANY else min(median, first)

    def pack(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        lengths = np.array([*self._known.values()], np.float64)
        return {"lengths": lengths}, {"workers": list(self._known)}

    def unpack(self, arrays: Mapping[str, NDArray[Any]], numbers: Mapping[str, Any]) -> Lengths:
        return Lengths(dict(zip(numbers["workers"], arrays["lengths"].tolist(), strict=True)))


@dataclass(slots=True)
class GuardState(Generic[S]):
    """The state of the rule inside, the lengths that were seen, and what was clipped."""

    inner: S
    first: float  # the scale before enough workers were heard
    lengths: Lengths
    extra_lengths: Lengths  # of the vectors that travel beside the model
    clipped: int = 0  # updates so far
    length: float = 0.0  # of the last one that was clipped
    bound: float = 0.0  # that it was beyond
    farthest: float = 0.0  # the most that a length was of the scale, clipped or not

    @property
    def params(self) -> Vector:
        return self.inner.params

    @property
    def version(self) -> int:
        return self.inner.version

    @property
    def extras(self) -> Mapping[str, Vector]:
        return self.inner.extras


@final
@dataclass(frozen=True)
class Guard(Wrapper[S]):
    """An update far longer than those of the other workers counts for next to nothing.

    With l the length of an update, s the scale of the run and B = ``factor`` * s, the update
    counts as if its length were

        l        where l <= B
        B^2 / l  beyond

    so that the best that one worker can do is to stay within ``factor`` of the others. Just beyond
    the bound little is lost; what is a million times too long counts for a millionth of B.
    The length is what ``Clip`` bounds: the norm of ``scale(local_lr, local_steps) * direction``.

    s is the lower median over the 64 workers heard last, the sender among them. Each has one vote,
    however often it reports: v becomes max(l, 0.9 v), so that a worker whose updates are now long,
    now short counts by its long ones. Lengths are taken as they came, so s follows honest workers
    wherever they go, as long as they are more than half of those heard.
    Until three workers were heard, s is max(1, norm of the first parameters): an update of that
    length replaces the model by another of its size, from which training can begin again. Until
    eight were heard, s is at most that: the first to come may be the wrong ones.
    Vectors beside the model (``SharedVectors``) are bounded in the same way, by their own scale.

    It does not stop workers who stay within the factor, who are half or more of those heard, or
    who send wrong directions of the usual length. ``factor=inf`` is the rule without a guard.
    The state takes 64 names and numbers at most, whatever the number of workers.
    """

    factor: float = FACTOR

    def __post_init__(self) -> None:
        if not self.factor >= 1:
            raise ConfigError(f"Guard needs a factor >= 1, got factor={self.factor}.")

    def init(self, params: Vector) -> GuardState[S]:
        inner = self.rule.init(params)
        first = max(1.0, float(norms(inner.params[None])[0]))
        return GuardState(inner, first, Lengths(), Lengths())

    def receive(self, state: GuardState[S], update: Update) -> GuardState[S]:
        params, names = state.params, frozenset(update.extras)
        seen = check(update, params=params, version=state.version, extras=names, measured=True)
        rate, steps = float(update.local_lr), int(update.local_steps)
        beside = max((float(norms(v[None])[0]) for v in update.extras.values()), default=0.0)
        after = _heard(state)
        weights = self._weigh(after, update.worker, self.scale(rate, steps) * seen.norm, beside)
        if min(weights) < 1:
            extras = {n: times(v, weights[1], v) for n, v in update.extras.items()}
            seen = replace(seen, local_lr=max(rate * weights[0], LEAST), extras=extras)
        after.inner = self.rule.receive(state.inner, seen)
        return after

    def receive_many(self, state: GuardState[S], block: Updates) -> GuardState[S]:
        """As in ``Rule``. On a GPU the host waits for the norms, once per block."""
        versions = versions_met(self.rule, state.inner, block)
        check(block, params=state.params, version=versions, extras=frozenset(block.extras))
        lengths = self.scales(block) * norms(block.directions)
        beside = np.zeros(len(block))
        for matrix in block.extras.values():
            beside = np.maximum(beside, norms(matrix))
        after, numbers = _heard(state), (block.workers, lengths.tolist(), beside.tolist())
        weights = [self._weigh(after, *each) for each in zip(*numbers, strict=True)]
        after.inner = self.rule.receive_many(state.inner, _weighed(block, weights))
        return after

    def _weigh(
        self, state: GuardState[S], worker: str, length: float, beside: float
    ) -> tuple[float, float]:
        """What the rate and the vectors beside the model are multiplied by; takes note of both."""
        found = []
        for lengths, each in ((state.lengths, length), (state.extra_lengths, beside)):
            lengths.hear(worker, each)
            scale = lengths.scale(state.first)
            bound = self.factor * scale
            state.farthest = max(state.farthest, each / scale)
            if each > bound:
                state.length, state.bound = each, bound
            found.append((bound / each) ** 2 if each > bound else 1.0)
        state.clipped += min(found) < 1
        return found[0], found[1]

    def remaining(self, state: GuardState[S]) -> int:
        return self.rule.remaining(state.inner)

    def flush(self, state: GuardState[S]) -> GuardState[S]:
        state.inner = self.rule.flush(state.inner)
        return state

    def forget(self, state: GuardState[S], worker: str) -> bool:
        """Drop what the rule inside keeps of a worker, and its vote on the scale."""
        known = [lengths.forget(worker) for lengths in (state.lengths, state.extra_lengths)]
        return self.rule.forget(state.inner, worker) or any(known)

    def rows(self, state: GuardState[S]) -> dict[str, WorkerRows]:
        return {f"inner.{name}": rows for name, rows in self.rule.rows(state.inner).items()}


def guard_of(state: Any) -> GuardState[Any] | None:
    """The state of the guard that is around a rule, if there is one."""
    return state if isinstance(state, GuardState) else None


def _heard(state: GuardState[S]) -> GuardState[S]:
    """A copy that can take note of updates which the rule inside may yet refuse."""
    lengths, extra_lengths = state.lengths.copy(), state.extra_lengths.copy()
    return replace(state, lengths=lengths, extra_lengths=extra_lengths)


def _weighed(block: Updates, weights: Iterable[tuple[float, float]]) -> Updates:
    """The block as the rule inside sees it."""
    pairs = np.array([*weights], np.float64).reshape(-1, 2)
    rows = np.flatnonzero(pairs.min(1, initial=1.0) < 1).tolist()
    if not rows:
        return block
    rates = np.maximum(block.local_lrs * pairs[:, 0], LEAST)
    extras = {
        name: _cut(matrix, rows, pairs[:, 1].tolist()) for name, matrix in block.extras.items()
    }
    return replace(block, local_lrs=rates, extras=extras)


def _cut(matrix: Matrix, rows: list[int], weights: list[float]) -> Matrix:
    cut: Matrix = copied(matrix)
    for row in rows:
        cut[row] = times(matrix[row], weights[row], matrix[row])
    return cut
