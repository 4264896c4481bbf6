"""The store: durable updates a second, beside appending the same bytes to a bare file.

Bodies of 4 MB and 40 KB arrive in groups, one transaction each; every eight updates (or every
group, if that is larger) a version is published, which drops the bodies that it folded and writes
a model and a state of the size of a body. What is counted are the bytes of the bodies.
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

from anarchic.server.sql import open_store
from anarchic.server.store import NewUpdate, Publication, Store

LARGE, SMALL = 4_000_000, 40_000
CASES = ((LARGE, 1), (LARGE, 4), (LARGE, 8), (SMALL, 1), (SMALL, 16), (SMALL, 64))
WARM_UP = {LARGE: 64, SMALL: 640}  # updates to reach the steady state
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
    """Updates a second when bodies are only appended to a file, with fdatasync for each group."""
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
        """Updates a second."""
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


def report(name: str, size: int, group: int, rate: float, raw: float) -> bool:
    """Print a line; whether the target is met, where there is one."""
    ratio = rate / raw
    target = ""
    met = True
    if name == "SQLite" and size == LARGE:
        met, target = ratio >= HALF_OF_RAW, f">= {HALF_OF_RAW} of raw"
    elif name == "SQLite" and group == 64:
        met, target = rate >= SMALL_PER_S, f">= {SMALL_PER_S:.0f}/s"
    mark = "" if met else "  MISSED"
    print(
        f"{name:<11}{size / 1e6:>8.2f} MB{group:>7}{rate:>10.0f}/s{rate * size / 1e6:>9.0f} MB/s"
        f"{raw * size / 1e6:>10.0f} MB/s{ratio:>7.2f}  {target}{mark}",
        flush=True,
    )
    return met


def main(folder: Path | None = None) -> int:
    met = True
    print(f"{'database':<11}{'body':>11}{'group':>7}{'updates':>12}{'':>14}{'raw':>15}{'ratio':>7}")
    with (
        tempfile.TemporaryDirectory(dir=folder) as made,
        databases(Path(made)) as places,
    ):
        for name, place in places.items():
            for size, group in CASES:
                raw = raw_rate(Path(made), size, group, timed(size, group))
                rate = measure(place(), size, group)
                met &= report(name, size, group, rate, raw)
    return 0 if met else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    sys.exit(main(parser.parse_args().folder))
