"""A guard against updates far longer than those of the other workers.

Nobody has to say how long an update may be: the workers themselves show it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from anarchic.core.arrays import copied, norms, times
from anarchic.core.checking import CheckedUpdate, check
from anarchic.core.rule import S, versions_met
from anarchic.core.types import Matrix, Update, Updates, Vector
from anarchic.core.wrappers import LEAST, StatefulWrapper, WrapperState
from anarchic.errors import ConfigError

FACTOR = 30.0  # experiments/guard: honest lengths reach 12 times the scale
WORKERS = 64  # whose lengths are kept: the median needs no more
FAR = 1000.0  # times the bound: what is longer than that is no honest worker's
OUTGROWN = 2.0  # times the bound: a remembered update that is longer is forgotten
FADE = 0.9  # per update of a worker, of what it sent before
FEW = 3  # workers: among fewer, one malicious worker is half of them
MANY = 8  # workers: before that most of those heard may be malicious
# These numbers are not stored with a run: changing one changes what a replay gives.

Weights = tuple[float, float]  # of the rate, and of the vectors beside the model


@final
class Lengths:
    """How long the vectors of the workers heard last are: one number per worker."""

    __slots__ = ("_known", "_ordered")

    def __init__(self, known: Mapping[str, float] | None = None) -> None:
        self._known = dict(known or {})  # the last heard last
        self._ordered = sorted(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def copy(self) -> Lengths:
        made = Lengths.__new__(Lengths)
        made._known, made._ordered = self._known.copy(), self._ordered.copy()
        return made

    def hear(self, worker: str, length: float) -> None:
        """Take up a length. One of zero says nothing about a scale."""
        if not 0 < length < inf:
            return
        before = self._known.get(worker, 0.0)
        self.forget(worker)
        self._known[worker] = vote = max(length, FADE * before)
        insort(self._ordered, vote)
        if len(self._known) > WORKERS:
            self.forget(next(iter(self._known)))

    def forget(self, worker: str) -> bool:
        vote = self._known.pop(worker, None)
        if vote is not None:
            del self._ordered[bisect_left(self._ordered, vote)]
        return vote is not None

    def scale(self, first: float) -> float:
        """The lower median, with ``first`` in its place until enough workers were heard."""
        heard = len(self._ordered)
        if heard < FEW:
            return first
        median = self._ordered[(heard - 1) // 2]
        return median if heard >= MANY else min(median, first)

    def pack(self) -> tuple[list[str], list[float]]:
        return list(self._known), list(self._known.values())


@final
class GuardRecord:
    """What a guard has seen: the lengths by worker, and what was clipped.

    It packs itself into one array: a server writes it with every version.
    """

    __slots__ = (
        "bound", "clipped", "counted", "extra_lengths", "farthest", "first", "length", "lengths"
    )  # fmt: skip

    def __init__(self, first: float, lengths: Lengths, extra_lengths: Lengths) -> None:
        self.first = first  # the scale before enough workers were heard
        self.lengths, self.extra_lengths = lengths, extra_lengths
        self.counted: dict[str, float] = {}  # lengths as they count, if the rule remembers workers
        self.clipped = 0  # updates so far
        self.length = 0.0  # of the last one that was clipped
        self.bound = 0.0  # that it was beyond
        self.farthest = 0.0  # largest length / scale so far, clipped or not

    def copy(self) -> GuardRecord:
        made = GuardRecord(self.first, self.lengths.copy(), self.extra_lengths.copy())
        made.clipped, made.length, made.bound = self.clipped, self.length, self.bound
        made.farthest, made.counted = self.farthest, self.counted.copy()
        return made

    def weigh(self, factor: float, worker: str, length: float, beside: float) -> Weights:
        """What the rate and the vectors beside the model are multiplied by; takes note of both."""
        rate = self._weight(factor, self.lengths, worker, length)
        extras = self._weight(factor, self.extra_lengths, worker, beside) if beside else 1.0
        self.clipped += rate < 1 or extras < 1
        return rate, extras

    def _weight(self, factor: float, lengths: Lengths, worker: str, length: float) -> float:
        lengths.hear(worker, length)
        scale = lengths.scale(self.first)
        bound = factor * scale
        self.farthest = max(self.farthest, length / scale)
        if not length > bound:
            return 1.0
        self.length, self.bound = length, bound
        return self.last_weight

    @property
    def last_weight(self) -> float:
        """What the last update that was clipped was multiplied by."""
        return self.bound / self.length * min(1.0, FAR * self.bound / self.length)

    def outgrown(self, factor: float, worker: str, counts: float) -> list[str]:
        """Note how much the last update of a worker counts; whose are far too long by now.

        A rule that remembers updates would go on to use them, though the scale has become smaller,
        or was not known when they came.
        """
        self.counted.pop(worker, None)
        self.counted[worker] = counts
        if len(self.counted) > WORKERS:
            del self.counted[next(iter(self.counted))]
        bound = OUTGROWN * factor * self.lengths.scale(self.first)
        found = [name for name, length in self.counted.items() if length > bound]
        for name in found:
            del self.counted[name]
        return found

    def forget(self, worker: str) -> bool:
        self.counted.pop(worker, None)
        known = [lengths.forget(worker) for lengths in (self.lengths, self.extra_lengths)]
        return any(known)

    def pack(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        workers, lengths = self.lengths.pack()
        beside, extra_lengths = self.extra_lengths.pack()
        numbers = [self.first, self.clipped, self.length, self.bound, self.farthest]
        array = np.array([*numbers, *lengths, *extra_lengths, *self.counted.values()], np.float64)
        names = {"workers": workers, "beside": beside, "counted": [*self.counted]}
        return {"numbers": array}, names

    def unpack(self, arrays: Mapping[str, NDArray[Any]], numbers: Mapping[str, Any]) -> GuardRecord:
        first, clipped, length, bound, farthest, *lengths = arrays["numbers"].tolist()
        workers, beside, counted = (numbers[name] for name in ("workers", "beside", "counted"))
        known = zip([*workers, *beside, *counted], lengths, strict=True)
        parts = [Lengths(dict(islice(known, len(names)))) for names in (workers, beside)]
        made = GuardRecord(first, *parts)
        made.counted = dict(known)
        made.clipped, made.length, made.bound = int(clipped), length, bound
        made.farthest = farthest
        return made


@dataclass(slots=True)
class GuardState(WrapperState[S]):
    """The state of the rule inside, and what the guard has seen."""

    inner: S
    record: GuardRecord


@final
@dataclass(frozen=True)
class Guard(StatefulWrapper[S]):
    """No update counts for much more than those of the other workers.

    With l the length of an update, s the scale of the run and B = ``factor`` * s, the update
    counts as if its length were

        l             where l <= B
        B             up to 1000 B
        1000 B^2 / l  beyond

    so that the best that one worker can do is to count for ``factor`` of the others. An honest
    worker that comes late, when the others have converged, still moves the model; what is a million
    times too long counts for a thousandth of B.
    The length is what ``Clip`` bounds: the norm of ``scale(local_lr, local_steps) * direction``.

    s is the lower median over the 64 workers heard last, the sender among them. Each has one vote,
    however often it reports: v becomes max(l, 0.9 v), so that a worker whose updates are now long,
    now short counts by its long ones. Lengths are taken as they came, so s follows honest workers
    wherever they go, as long as they are more than half of those heard.
    Until three workers were heard, s is max(1, norm of the first parameters): an update of that
    length replaces the model by another of its size, from which training can begin again. Until
    eight were heard, s is at most that: the first to come may be the wrong ones.
    A rule that remembers the last update of each worker (``AfaCs``) forgets one that counts for
    more than 2 B by now: it came before s was known, or s has become smaller.
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
        return GuardState(inner, GuardRecord(first, Lengths(), Lengths()))

    def receive(self, state: GuardState[S], update: Update) -> GuardState[S]:
        seen = self._measured(state, update)
        rate, steps, beside = float(seen.local_lr), int(seen.local_steps), 0.0
        if seen.extras:
            beside = max(float(norms(vector[None])[0]) for vector in seen.extras.values())
        record = state.record.copy()  # the rule inside may yet refuse the update
        length = self.scale(rate, steps) * (seen.norm or 0.0)
        weights = record.weigh(self.factor, seen.worker, length, beside)
        if min(weights) < 1:
            extras = {name: times(v, weights[1], v) for name, v in seen.extras.items()}
            seen = replace(seen, local_lr=max(rate * weights[0], LEAST), extras=extras)
        inner = self.rule.receive(state.inner, seen)
        if self.remembers != 0:
            for worker in record.outgrown(self.factor, seen.worker, weights[0] * length):
                self.rule.forget(inner, worker)
        return GuardState(inner, record)

    def _measured(self, state: GuardState[S], update: Update) -> CheckedUpdate:
        """With the norm of its direction; one that was checked and measured is not read again."""
        if isinstance(update, CheckedUpdate) and update.norm is not None:
            return update
        params, names = state.params, frozenset(update.extras)
        found: CheckedUpdate = check(
            update, params=params, version=state.version, extras=names, measured=True
        )
        return found

    def receive_many(self, state: GuardState[S], block: Updates) -> GuardState[S]:
        """As in ``Rule``. On a GPU the host waits for the norms, once per block."""
        versions = versions_met(self.rule, state.inner, block)
        check(block, params=state.params, version=versions, extras=frozenset(block.extras))
        lengths = self.scales(block) * norms(block.directions)
        beside = np.zeros(len(block))
        for matrix in block.extras.values():
            beside = np.maximum(beside, norms(matrix))
        record, columns = state.record.copy(), (block.workers, lengths.tolist(), beside.tolist())
        inner, start, weights = state.inner, 0, []
        for row, each in enumerate(zip(*columns, strict=True)):
            weights.append(record.weigh(self.factor, *each))
            if self.remembers == 0:
                continue
            worker, length, _ = each
            if found := record.outgrown(self.factor, worker, weights[-1][0] * length):
                part = _weighed(block[start : row + 1], weights[start:])
                inner, start = self.rule.receive_many(inner, part), row + 1
                for name in found:
                    self.rule.forget(inner, name)
        if start < len(block):
            inner = self.rule.receive_many(inner, _weighed(block[start:], weights[start:]))
        return GuardState(inner, record)

    def forget(self, state: GuardState[S], worker: str) -> bool:
        """Drop what the rule inside keeps of a worker, and its vote on the scale."""
        known = state.record.forget(worker)
        return self.rule.forget(state.inner, worker) or known

    def guard_record(self, state: GuardState[S]) -> GuardRecord:
        return state.record


def _weighed(block: Updates, weights: Iterable[Weights]) -> Updates:
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
