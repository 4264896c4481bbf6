"""The store: durable updates per second, beside appending the same bytes to a bare file.

Bodies of 4 MB and 40 KB arrive in groups, one transaction each; every eight updates (or every
group, if that is larger) a version is published, which drops the bodies that it folded and writes
a model and a state of the size of a body. File and store take turns. Exits with 1 if a bound is
missed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anarchic.server.records import NewUpdate, Publication
from anarchic.server.store import Store, open_store
from benchmarks.record import RESULTS, Record

LARGE, SMALL = 4_000_000, 40_000
CASES = ((LARGE, 1), (LARGE, 4), (LARGE, 8), (SMALL, 1), (SMALL, 16), (SMALL, 64))
WARM_UP = {LARGE: 64, SMALL: 640}  # updates to reach the steady state
REPEATS = 3
HALF_OF_RAW = 0.5
SMALL_PER_S = 1500.0


def timed(size: int, group: int) -> int:
    """How many updates are timed: whole groups, and not many seconds of single commits."""
    return 200 if size == LARGE else min(4096, 256 * group)


class Feed:
    """Numbered updates with the same body, which is never the database's business."""

    def __init__(self, size: int) -> None:
        self.body = bytearray(os.urandom(size))
        self._digest = hashlib.sha256(self.body).digest()
        self._number = 0

    def take(self, count: int) -> list[NewUpdate]:
        start, self._number = self._number, self._number + count
        return [self._make(number) for number in range(start, start + count)]

    def _make(self, number: int) -> NewUpdate:
        name = hashlib.blake2b(str(number).encode(), digest_size=16).hexdigest()
        return NewUpdate(
            f"worker-{number % 997}", name, self._digest, 0, 5, 0.1, 320, 1.0, 0.0, self.body
        )


def raw_rate(folder: Path, size: int, group: int, count: int) -> float:
    """Updates per second when bodies are only appended to a file, with fdatasync for each group."""
    body = os.urandom(size)
    path = folder / "raw"
    with path.open("wb", buffering=0) as file:
        started = time.perf_counter()
        for _ in range(count // group):
            for _ in range(group):
                file.write(body)
            os.fdatasync(file.fileno())
        taken = time.perf_counter() - started
    path.unlink()
    return count // group * group / taken


class Load:
    """Appends groups and publishes, as a server under load does."""

    def __init__(self, store: Store, feed: Feed, group: int) -> None:
        self._store, self._feed, self._group = store, feed, group
        self._model = bytes(feed.body)
        store.create({}, self._model, self._model)
        self._epoch = store.lead() or 0
        self._version = 0
        self._waiting: list[int] = []

    def run(self, count: int) -> float:
        """Updates per second."""
        started = time.perf_counter()
        for _ in range(0, count, self._group):
            self._waiting += [r.seq for r in self._store.append(self._feed.take(self._group))]
            if len(self._waiting) >= max(8, self._group):
                self._publish()
        return count / (time.perf_counter() - started)

    def _publish(self) -> None:
        previous, self._version = self._version, self._version + 1
        folded = [(seq, self._version) for seq in self._waiting]
        self._store.publish(
            Publication(self._epoch, previous, self._version, folded, self._model, self._model)
        )
        self._waiting = []


def measure(where: str | Path, size: int, group: int) -> float:
    store = open_store(where)
    try:
        load = Load(store, Feed(size), group)
        load.run(WARM_UP[size] if group > 1 else 64)
        return load.run(timed(size, group))
    finally:
        store.close()


Places = Callable[[], str | Path]


@contextmanager
def databases(folder: Path) -> Iterator[dict[str, Places]]:
    """A fresh place for a store each time, in every database that is to be had."""
    names = (f"bench{number}" for number in range(10**6))
    found: dict[str, Places] = {"SQLite": lambda: folder / next(names)}
    try:
        from tests.server.postgres import postgres_server
    except ImportError:
        yield found
        return
    with suppress(_skipped()), postgres_server() as server:
        yield found | {"PostgreSQL": server.new_place}
        return
    yield found


def _skipped() -> type[BaseException]:
    import pytest

    return pytest.skip.Exception


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    settings = parser.parse_args()
    record = Record("store", "The store: durable updates, beside appending them to a file")
    with (
        tempfile.TemporaryDirectory(dir=settings.folder) as made,
        databases(Path(made)) as places,
    ):
        for name, place in places.items():
            for size, group in CASES:
                raw, rates = [], []
                for _ in range(settings.repeats):
                    raw.append(raw_rate(Path(made), size, group, timed(size, group)))
                    rates.append(measure(place(), size, group))
                keep(record, f"{name}, {size / 1e6:g} MB, groups of {group}", rates, raw)
    judge(record)
    return record.finish(settings.out)


def keep(record: Record, group: str, rates: list[float], raw: list[float]) -> None:
    bare = record.measure("file", raw, unit="updates/s", group=group)
    rate = record.measure("store", rates, unit="updates/s", group=group)
    record.ratio("store / file", rate / bare, group=group)
    print(f"{group}: {rate:.0f} updates/s, {rate / bare:.2f} of a file's", flush=True)


def judge(record: Record) -> None:
    """Of SQLite: half of the disk's rate for large updates, and a minimum rate of small ones."""
    for ratio in record.ratios:
        if ratio.group.startswith(f"SQLite, {LARGE / 1e6:g} MB"):
            record.bound(f"{ratio.group}: {ratio.name}", ratio.value, least=HALF_OF_RAW)
    small = f"SQLite, {SMALL / 1e6:g} MB, groups of 64"
    rates = [m.median for m in record.measures if (m.group, m.name) == (small, "store")]
    record.bound(f"{small}: updates/s", max(rates, default=None), least=SMALL_PER_S)


if __name__ == "__main__":
    sys.exit(main())
