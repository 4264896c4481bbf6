"""Updates and publications for the tests of stores."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from anarchic.server.records import NewUpdate, Publication
from anarchic.server.store import Store
from anarchic.wire.strict import Buffer


def new(worker: str, name: str, body: Buffer = b"body", **changes: object) -> NewUpdate:
    facts = {
        "base_version": 3,
        "local_steps": 5,
        "local_lr": 0.1,
        "samples": 320,
        "norm": 1.5,
        "received_s": 1e9 + 0.25,
    }
    digest = hashlib.sha256(body).digest()
    return NewUpdate(worker, name, digest, body=body, **(facts | changes))  # type: ignore[arg-type]


def next_version(store: Store, epoch: int, seqs: Sequence[int], **changes: object) -> Publication:
    """The publication that folds ``seqs`` into the next version."""
    run = store.run()
    assert run is not None
    version = run.version + 1
    whole = Publication(
        epoch=epoch,
        previous=run.version,
        version=version,
        folded=[(seq, version) for seq in seqs],
        model=f"model {version}".encode(),
        state=f"state {version}".encode(),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def state_of(store: Store) -> tuple[bytes, dict[str, bytes]]:
    """The rule's state at the newest version, and its rows by worker."""
    found = store.standing()
    return found.state, dict(found.rows)


class Queued(NamedTuple):
    """An accepted update that no version holds."""

    seq: int
    worker: str
    body: Buffer | None


def queued(store: Store, most: int) -> list[Queued]:
    """The oldest of them, read as the aggregator reads them."""
    return [Queued(seq, worker, store.body(seq)) for seq, worker in store.waiting()[:most]]


def outcomes(store: Store, *updates: object) -> list[tuple[str, int]]:
    return [(receipt.outcome, receipt.seq) for receipt in store.append(updates)]  # type: ignore[arg-type]


def led(store: Store) -> int:
    epoch = store.lead()
    assert epoch is not None
    return epoch


def everything(store: Store) -> tuple[object, ...]:
    models = [store.model(version) for version in range(4)]
    return store.run(), state_of(store), list(store.trace()), queued(store, 99), models
