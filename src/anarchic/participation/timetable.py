"""The timetable: updates in the order in which they are folded, without their values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.core.reading import shown
from anarchic.core.types import Bools, Floats, Ints
from anarchic.errors import ConfigError
from anarchic.participation.wasted import Wasted

_INTS = ("worker", "visit", "base_version", "local_steps")
_TIMES = ("pull_s", "push_s")
MOST_STEPS = 1 << 24  # per visit: the random numbers of a run can tell this many apart
# Processes draw this many rounds at first, and then more, whatever number was asked for: a longer
# table of the same seed begins with the shorter one. Another value gives other tables for a seed.
FIRST_ROUNDS = 150
MOST_WORKERS = 1 << 24
MOST_ROWS = 1 << 28  # of a whole table that ends at a time: 10 GiB


@dataclass(frozen=True, eq=False)
class Stepped:
    """Rows and time of each version, where a timer steps as well as the m-th update."""

    sizes: Ints  # (rounds,) from 1 to m
    at_s: Floats  # (rounds,)

    def block(self, first: int, end: int) -> Stepped:
        return Stepped(self.sizes[first:end].copy(), self.at_s[first:end].copy())


@dataclass(frozen=True, eq=False)
class Timetable:
    """Updates in the order in which they are folded, without their values.

    Rows ``[t*m, (t+1)*m)`` make version ``t+1``; rows after the last full round make none.
    ``visit`` counts a worker's rows from 0, so that ``(worker, visit)`` names one row. A block of a
    longer table says how many rounds stand ``before`` it; its versions and visits go on from there.
    Times are virtual seconds, or None where the process has no clock (the paper's sampler).
    ``later`` are the versions from which updates after the last row may start, None where that is
    not known. They say nothing about the rows, but a run that keeps them can go on further.
    ``stepped`` is there where rounds have fewer than ``m`` rows, because a timer steps too.
    ``wasted`` counts what is in no row, where that is known; it does not make tables differ.

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
    before: int = 0
    later: Ints | None = None
    stepped: Stepped | None = None
    wasted: Wasted | None = None

    def __len__(self) -> int:
        return len(self.worker)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timetable) and self.digest() == other.digest()

    @property
    def rounds(self) -> int:
        """Full rounds, T."""
        return len(self) // self.m if self.stepped is None else len(self.stepped.sizes)

    @property
    def version(self) -> Ints:
        """The version from which the step of each row's round starts."""
        if self.stepped is None:
            return (self.before + np.arange(len(self)) // self.m).astype(np.int32)
        rounds = np.arange(self.rounds, dtype=np.int32)
        return np.repeat(self.before + rounds, self.stepped.sizes)

    @property
    def ends(self) -> NDArray[np.int64]:
        """(rounds,) the row after the last one of each round."""
        if self.stepped is None:
            return np.arange(1, self.rounds + 1) * self.m
        return np.cumsum(self.stepped.sizes, dtype=np.int64)

    def first_row(self, rounds: int) -> int:
        """The row after N rounds."""
        if self.stepped is None:
            return rounds * self.m
        return int(self.stepped.sizes[:rounds].sum())

    @property
    def staleness(self) -> Ints:
        """``version - base_version`` of each row, tau."""
        return self.version - self.base_version

    @property
    def version_s(self) -> Floats | None:
        """When each version appears: at the last push of its round, or when the timer steps."""
        if self.push_s is None:
            return None
        return self.push_s[self.m - 1 :: self.m] if self.stepped is None else self.stepped.at_s

    def cut(self, rounds: int) -> Timetable:
        """The first ``rounds`` rounds only."""
        if not 0 <= rounds <= self.rounds:
            raise ConfigError(
                f"Cannot cut a timetable of {self.rounds} rounds to {rounds}; make a longer one."
            )
        return self.block(0, rounds)

    def rounds_until(self, until_s: float) -> int:
        """How many rounds have ended at a virtual time."""
        if self.version_s is None:
            raise ConfigError(
                f"A timetable without a clock does not end at until_s={until_s:g}: give rounds."
            )
        return int(np.searchsorted(self.version_s, until_s, side="right"))

    def begins_with(self, shorter: Timetable) -> bool:
        """Whether its first rounds are those of another table."""
        return shorter.rounds <= self.rounds and self.cut(shorter.rounds) == shorter

    def block(self, first: int, end: int) -> Timetable:
        """The rounds ``first`` .. ``end - 1``."""
        rows = slice(self.first_row(first), self.first_row(end))
        # Copies: a view would keep the whole table alive.
        kept: dict[str, Any] = {name: column[rows].copy() for name, column in self._rows().items()}
        for name in ("stepped", "wasted"):
            if (each := getattr(self, name)) is not None:
                kept[name] = each.block(first, end)
        return replace(self, before=self.before + first, later=None, **kept)

    @staticmethod
    def join(blocks: Sequence[Timetable]) -> Timetable:
        """Blocks that follow each other, as one; there is at least one."""
        columns = [block._rows() for block in blocks]
        joined: dict[str, Any] = {
            name: np.concatenate([column[name] for column in columns]) for name in columns[0]
        }
        if stepped := [block.stepped for block in blocks if block.stepped is not None]:
            sizes, at_s = ([getattr(each, name) for each in stepped] for name in ("sizes", "at_s"))
            joined["stepped"] = Stepped(np.concatenate(sizes), np.concatenate(at_s))
        if wasted := [block.wasted for block in blocks if block.wasted is not None]:
            joined["wasted"] = Wasted.join(wasted)
        return replace(blocks[0], later=blocks[-1].later, **joined)

    def check(self) -> None:
        """Raise ConfigError for a table that no run can produce."""
        if not 1 <= self.workers <= MOST_WORKERS or self.m < 1:
            raise ConfigError(
                f"A timetable needs 1 to {MOST_WORKERS} workers and m >= 1, got {self.workers} and "
                f"{self.m}."
            )
        self._check_columns()
        self._check_stepped()
        self._refuse(
            (self.worker < 0) | (self.worker >= self.workers),
            "worker",
            f"workers are numbered 0..{self.workers - 1}",
        )
        numbers = running_numbers(self.worker)
        self._refuse(
            self.visit < numbers if self.before else self.visit != numbers,
            "visit",
            "a worker's visits are numbered 0, 1, 2, ... in the order of its rows",
        )
        self._refuse(
            (self.local_steps < 1) | (self.local_steps >= MOST_STEPS),
            "local_steps",
            f"a visit takes at least one local step, and fewer than {MOST_STEPS}",
        )
        self._refuse(
            (self.base_version < 0) | (self.staleness < 0),
            "base_version",
            "a worker can only pull a version that exists: 0 <= base_version <= row // m",
        )
        self._check_times()

    def to_arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
        """Columns by name (times only where there is a clock), and the scalar fields."""
        arrays, meta = self._defining()
        return arrays | ({} if self.wasted is None else self.wasted.to_arrays()), meta

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, int]) -> Timetable:
        """A table from what `to_arrays` returned, checked."""
        missing = [name for name in _INTS if name not in arrays]
        missing += [name for name in ("workers", "m") if name not in meta]
        if missing:
            raise ConfigError(f"A saved timetable lacks {', '.join(missing)}; save it again.")
        values: dict[str, Any] = {name: arrays.get(name) for name in (*_INTS, *_TIMES)}
        for name in ("workers", "m", "before"):
            values[name] = found = meta.get(name, 0)
            if type(found) is not int or not 0 <= found < 2**31:
                raise ConfigError(
                    f"A saved timetable has {name}={shown(found)}, not a whole number below 2^31; "
                    "save it again."
                )
        if "sizes" in arrays and "stepped_s" in arrays:
            values["stepped"] = Stepped(arrays["sizes"], arrays["stepped_s"])
        table = Timetable(**values)
        table.check()
        return replace(table, wasted=Wasted.from_arrays(arrays, table.rounds))

    def digest(self) -> str:
        """SHA-256 (hex) of all rows and steps: equal tables have equal digests."""
        arrays, meta = self._defining()
        digest = hashlib.sha256(repr(sorted(meta.items())).encode())
        for name, column in arrays.items():
            digest.update(f"{name}:{len(column)}:".encode())
            # Little-endian everywhere, so that the digest does not depend on the machine.
            digest.update(np.ascontiguousarray(column, column.dtype.newbyteorder("<")).data)
        return digest.hexdigest()

    def _defining(self) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
        """What makes a table differ from another."""
        arrays = self._rows()
        if self.stepped is not None:
            arrays |= {"sizes": self.stepped.sizes, "stepped_s": self.stepped.at_s}
        meta = {"workers": self.workers, "m": self.m}
        return arrays, meta | ({"before": self.before} if self.before else {})

    def _rows(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in _INTS}
        if self.pull_s is not None and self.push_s is not None:
            arrays |= {"pull_s": self.pull_s, "push_s": self.push_s}
        return arrays

    def _check_columns(self) -> None:
        if (self.pull_s is None) != (self.push_s is None):
            raise ConfigError("A timetable has both pull_s and push_s or neither; give both.")
        arrays = self._rows()
        if self.worker.ndim != 1:
            raise ConfigError(
                f"Column worker of a timetable must be a vector, got shape {self.worker.shape}."
            )
        for name, column in arrays.items():
            dtype = np.float64 if name in _TIMES else np.int32
            if column.shape != (len(self),) or column.dtype != dtype:
                raise ConfigError(
                    f"Column {name} of a timetable must be {np.dtype(dtype)} of shape "
                    f"({len(self)},), got {column.dtype} of shape {column.shape}."
                )

    def _check_stepped(self) -> None:
        if self.stepped is None:
            return
        sizes, at_s = self.stepped.sizes, self.stepped.at_s
        kinds = sizes.dtype == np.int32 and at_s.dtype == np.float64
        if self.push_s is None or not kinds or sizes.ndim != 1 or sizes.shape != at_s.shape:
            raise ConfigError(
                "A timetable with a timer has a clock, and the rows (int32) and the time (float64) "
                f"of each version, got {sizes.dtype} of shape {sizes.shape} and {at_s.dtype} of "
                f"shape {at_s.shape}; save it again."
            )
        if ((sizes < 1) | (sizes > self.m)).any() or sizes.sum(dtype=np.int64) != len(self):
            raise ConfigError(
                f"The rounds of a timetable with a timer have 1 to m={self.m} rows and together "
                f"all {len(self)}, got {shown(sizes[:8].tolist())}; save it again."
            )
        if not (np.diff(at_s) >= 0).all() or not (at_s >= self.push_s[self.ends - 1]).all():
            raise ConfigError(
                "A version of the timetable appears before its updates or before the version "
                "before it; save it again."
            )

    def _check_times(self) -> None:
        if self.pull_s is None or self.push_s is None or self.version_s is None:
            return
        # Written so that NaN is refused too.
        self._refuse(~np.isfinite(self.push_s), "push_s", "lost updates have no row")
        self._refuse(~(self.pull_s <= self.push_s), "pull_s", "a worker pulls before it pushes")
        earlier = np.concatenate(([-np.inf], self.push_s[:-1]))
        self._refuse(self.push_s < earlier, "push_s", "rows are in the order of their pushes")
        appeared = np.concatenate(([-np.inf], self.version_s))
        self._refuse(
            self.pull_s < appeared[np.maximum(self.base_version - self.before, 0)],
            "pull_s",
            "a worker cannot pull its base version before it appears",
        )

    def _refuse(self, wrong: Bools, name: str, reason: str) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ConfigError(
                f"Row {row} of the timetable has {name}={getattr(self, name)[row]}; {reason}."
            )


def check_rounds(rounds: int) -> None:
    """Refuse a negative number of rounds."""
    if rounds < 0:
        raise ConfigError(f"A timetable has rounds >= 0, got {rounds}.")


def check_end(rounds: int | None, until_s: float | None) -> None:
    """Refuse a table without an end, or one that ends before it begins."""
    if rounds is None and until_s is None:
        raise ConfigError("A timetable has an end: give rounds, until_s or both.")
    if rounds is not None:
        check_rounds(rounds)
    if until_s is not None and not 0 <= until_s < np.inf:
        raise ConfigError(f"A timetable ends at a finite time: 0 <= until_s < inf, got {until_s}.")


def check_length(rows: int, until_s: float | None) -> None:
    """Refuse a time that is so late that the updates up to it would fill the memory."""
    if until_s is not None and rows > MOST_ROWS:
        raise ConfigError(
            f"There are more than {MOST_ROWS} updates up to until_s={until_s:g}: end earlier, or "
            "make the timetable in blocks."
        )


def growing_blocks(m: int, rows: int) -> Iterator[tuple[int, int]]:
    """First and last round of one block after the other, without end, for rounds of ``m`` rows.

    A block has `FIRST_ROUNDS` rounds or half of those before it, but at most ``rows`` rows. A
    process that draws block by block, each whole, gives tables that begin alike, and draws little
    in vain.

    >>> blocks = growing_blocks(5, 1 << 20)
    >>> [next(blocks) for _ in range(4)]
    [(0, 150), (150, 300), (300, 450), (450, 675)]
    """
    most, begin = max(1, rows // m), 0
    while True:
        end = begin + min(max(FIRST_ROUNDS, begin // 2), most)
        yield begin, end
        begin = end


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
