"""The timetable: updates in the order in which they are folded, without their values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.errors import ConfigError
from anarchic.participation.arrays import Bools, Floats, Ints
from anarchic.participation.visits import Visits

_INTS = ("worker", "visit", "base_version", "local_steps")
_TIMES = ("pull_s", "push_s")


@dataclass(frozen=True, eq=False)
class Timetable:
    """Updates in the order in which they are folded, without their values.

    Rows ``[t*m, (t+1)*m)`` make version ``t+1``; rows after the last full round make none.
    ``visit`` counts a worker's rows from 0, so that ``(worker, visit)`` names one row.
    Times are virtual seconds, or None where the process has no clock (the paper's sampler).

    Symbols: ``workers`` is M, ``base_version`` is mu, ``local_steps`` is K, ``staleness`` is tau.
    """

    workers: int
    m: int
    worker: Ints  # (n,)
    visit: Ints  # (n,)
    base_version: Ints  # (n,)
    local_steps: Ints  # (n,)
    pull_s: Floats | None = None  # (n,)
    push_s: Floats | None = None  # (n,)

    def __len__(self) -> int:
        return len(self.worker)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timetable):
            return NotImplemented
        (mine, meta), (theirs, other_meta) = self.to_arrays(), other.to_arrays()
        return (
            meta == other_meta
            and mine.keys() == theirs.keys()
            and all(np.array_equal(mine[name], theirs[name]) for name in mine)
        )

    @property
    def rounds(self) -> int:
        """Full rounds, T."""
        return len(self) // self.m

    @property
    def version(self) -> Ints:
        """The version from which the step of each row's round starts."""
        return (np.arange(len(self)) // self.m).astype(np.int32)

    @property
    def staleness(self) -> Ints:
        """``version - base_version`` of each row, tau."""
        return self.version - self.base_version

    @property
    def version_s(self) -> Floats | None:
        """When versions 1, 2, ... appear: at the last push of their round."""
        if self.push_s is None:
            return None
        return self.push_s[self.m - 1 :: self.m]

    def cut(self, rounds: int) -> Timetable:
        """The first ``rounds`` rounds only."""
        if not 0 <= rounds <= self.rounds:
            raise ConfigError(
                f"Cannot cut a timetable of {self.rounds} rounds to {rounds}; make a longer one."
            )
        rows = slice(rounds * self.m)
        arrays, _ = self.to_arrays()
        # Copies: a view would keep the whole table alive.
        kept: dict[str, Any] = {name: column[rows].copy() for name, column in arrays.items()}
        return replace(self, **kept)

    def check(self) -> None:
        """Raise ConfigError for a table that no run could have produced."""
        if self.workers < 1 or self.m < 1:
            raise ConfigError(
                f"A timetable needs workers >= 1 and m >= 1, got {self.workers} and {self.m}."
            )
        self._check_columns()
        self._refuse(
            (self.worker < 0) | (self.worker >= self.workers),
            "worker",
            f"workers are numbered 0..{self.workers - 1}",
        )
        self._refuse(
            self.visit != running_numbers(self.worker),
            "visit",
            "a worker's visits are numbered 0, 1, 2, ... in the order of its rows",
        )
        self._refuse(self.local_steps < 1, "local_steps", "a visit takes at least one local step")
        self._refuse(
            (self.base_version < 0) | (self.staleness < 0),
            "base_version",
            "a worker can only pull a version that exists: 0 <= base_version <= row // m",
        )
        self._check_times()

    def to_arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
        """Columns by name (times only where there is a clock), and the numbers beside them."""
        arrays: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in _INTS}
        if self.pull_s is not None and self.push_s is not None:
            arrays |= {"pull_s": self.pull_s, "push_s": self.push_s}
        return arrays, {"workers": self.workers, "m": self.m}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, int]) -> Timetable:
        """What `to_arrays` gave, checked."""
        missing = [name for name in _INTS if name not in arrays]
        missing += [name for name in ("workers", "m") if name not in meta]
        if missing:
            raise ConfigError(f"A saved timetable lacks {', '.join(missing)}; save it again.")
        table = Timetable(
            workers=int(meta["workers"]),
            m=int(meta["m"]),
            worker=arrays["worker"],
            visit=arrays["visit"],
            base_version=arrays["base_version"],
            local_steps=arrays["local_steps"],
            pull_s=arrays.get("pull_s"),
            push_s=arrays.get("push_s"),
        )
        table.check()
        return table

    def digest(self) -> str:
        """SHA-256 (hex) of everything in the table: equal tables have equal digests."""
        arrays, meta = self.to_arrays()
        digest = hashlib.sha256(repr(sorted(meta.items())).encode())
        for name, column in arrays.items():
            digest.update(f"{name}:{len(column)}:".encode())
            # Little-endian everywhere, so that the digest does not depend on the machine.
            digest.update(np.ascontiguousarray(column, column.dtype.newbyteorder("<")).data)
        return digest.hexdigest()

    def _check_columns(self) -> None:
        if (self.pull_s is None) != (self.push_s is None):
            raise ConfigError("A timetable has both pull_s and push_s or neither; give both.")
        arrays, _ = self.to_arrays()
        for name, column in arrays.items():
            dtype = np.float64 if name in _TIMES else np.int32
            if column.shape != (len(self),) or column.dtype != dtype:
                raise ConfigError(
                    f"Column {name} of a timetable must be {np.dtype(dtype)} of shape "
                    f"({len(self)},), got {column.dtype} of shape {column.shape}."
                )

    def _check_times(self) -> None:
        if self.pull_s is None or self.push_s is None or self.version_s is None:
            return
        # Written so that NaN is refused too.
        self._refuse(~np.isfinite(self.push_s), "push_s", "updates that never arrive have no row")
        self._refuse(~(self.pull_s <= self.push_s), "pull_s", "a worker pulls before it pushes")
        earlier = np.concatenate(([-np.inf], self.push_s[:-1]))
        self._refuse(self.push_s < earlier, "push_s", "rows stand in the order of their pushes")
        appeared = np.concatenate(([-np.inf], self.version_s))
        self._refuse(
            self.pull_s < appeared[self.base_version],
            "pull_s",
            "a worker cannot pull its base version before it appears",
        )

    def _refuse(self, wrong: Bools, name: str, reason: str) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ConfigError(
                f"Row {row} of the timetable has {name}={getattr(self, name)[row]}; {reason}."
            )


def from_visits(visits: Visits, m: int, workers: int) -> Timetable:
    """The timetable of a server that steps at every ``m``-th push.

    Pushes at the same time are folded in the order of worker numbers. A worker pulls after the
    pushes of that very moment have been folded, except that no update can start from a version
    that it helps to make. Visits that never push are left out.
    """
    if m < 1:
        raise ConfigError(f"A server steps at every m-th push, m >= 1, got m={m}.")
    visits.check(workers)
    lost = visits.lost
    pushed = visits[~lost] if lost.any() else visits
    order = _fold_order(pushed)
    push_s, pull_s = pushed.push_s[order], pushed.pull_s[order]
    version_s = push_s[m - 1 :: m]
    base = np.searchsorted(version_s, pull_s, side="right")
    np.minimum(base, np.arange(len(base)) // m, out=base)
    worker = pushed.worker[order].astype(np.int32, copy=False)
    return Timetable(
        workers=workers,
        m=m,
        worker=worker,
        visit=running_numbers(worker),
        base_version=base.astype(np.int32),
        local_steps=pushed.local_steps[order].astype(np.int32, copy=False),
        pull_s=pull_s,
        push_s=push_s,
    )


def check_rounds(rounds: int) -> None:
    """Refuse to make a table of fewer than no rounds."""
    if rounds < 0:
        raise ConfigError(f"A timetable has rounds >= 0, got {rounds}.")


def running_numbers(worker: Ints) -> Ints:
    """For each row, how many earlier rows have the same worker."""
    n = len(worker)
    # Sorting (worker, row) packed into one integer is about twice as fast as a stable argsort.
    packed = worker.astype(np.int64) << 32
    packed |= np.arange(n)
    packed.sort()
    rows, owners = packed & 0xFFFFFFFF, packed >> 32
    first = np.flatnonzero(np.diff(owners, prepend=-1))
    numbers = np.arange(n, dtype=np.int32)
    numbers -= np.repeat(first, np.diff(first, append=n)).astype(np.int32)
    visit = np.empty(n, np.int32)
    visit[rows] = numbers
    return visit


def _fold_order(visits: Visits) -> NDArray[np.int64]:
    order = np.argsort(visits.push_s, kind="stable")
    push_s = visits.push_s[order]
    same = push_s[1:] == push_s[:-1]
    if not same.any():
        return order
    # Ties are few as a rule: only they pay for the second key.
    tied = np.concatenate((same, [False])) | np.concatenate(([False], same))
    rows = order[tied]
    order[tied] = rows[np.lexsort((visits.worker[rows], visits.push_s[rows]))]
    return order
