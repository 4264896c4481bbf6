"""A store with many workers, filled without a server."""

from __future__ import annotations

import numpy as np

from anarchic.server.activity import settle
from anarchic.server.records import NewUpdate, Publication
from anarchic.server.store import Store

CHUNK = 5000


def fill(store: Store, *, workers: int, updates: int, m: int, now_s: float = 1e9) -> None:
    """Append and publish updates of many workers; every worker has at least one if there is room.

    The newest came at ``now_s``, the others one millisecond before each other.
    """
    rng = np.random.default_rng(0)
    names = np.concatenate([np.arange(workers), rng.integers(workers, size=updates)])[:updates]
    epoch = store.lead()
    for first in range(0, updates, CHUNK):
        _chunk(store, epoch, names[first : first + CHUNK], first, m, now_s - updates / 1000)
    store.resign()
    settle(store)


def _chunk(store: Store, epoch: int, names, first: int, m: int, begun_s: float) -> None:
    rng = np.random.default_rng(first + 1)
    new = []
    for place, worker in enumerate(names.tolist(), first):
        version, late = place // m, int(rng.integers(6))
        norm = float(rng.lognormal() * (40 if worker % 97 == 5 else 1))
        new.append(
            NewUpdate(
                f"worker-{worker}", str(place), place.to_bytes(32, "big"), max(0, version - late),
                int(rng.integers(1, 20)), 0.1, 10, norm, begun_s + place / 1000, b"x",
            )
        )  # fmt: skip
    receipts = store.append(new)
    folded = [(r.seq, (first + place) // m + 1) for place, r in enumerate(receipts)]
    version = (first + len(new)) // m
    run = store.run()
    store.publish(Publication(epoch, run.version, version, folded, b"model", b"state"))
