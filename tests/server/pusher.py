"""A process that appends and publishes until it is killed, for the tests of what survives.

    python -m tests.server.pusher PLACE NAME [GROUPS]

It says what was accepted only once ``append`` has returned. The state that it publishes is a chain
over everything folded, so that a state that does not belong to the trace gives itself away.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Iterable

from anarchic.server.records import Publication
from anarchic.server.store import Store, open_store
from tests.server.stored import new, queued, state_of

M = 4  # updates to a version
EMPTY = b"\0" * 32


def extend(chain: bytes, bodies: Iterable[bytes]) -> bytes:
    for body in bodies:
        chain = hashlib.sha256(chain + body).digest()
    return chain


def body_of(name: str) -> bytes:
    return name.encode() * 40


def push(place: str, name: str, groups: int) -> None:
    store = open_store(place)
    epoch = store.lead()
    for number in itertools.count() if groups < 0 else range(groups):
        names = [f"{name}-{number}-{i}" for i in range(3)]
        for receipt in store.append([new("w", each, body_of(each)) for each in names]):
            assert receipt.outcome == "accepted"
        _say(f"accepted {json.dumps(names)}")
        while epoch is not None and len(queued(store, M)) == M:
            _publish(store, epoch)
    store.close()


def _publish(store: Store, epoch: int) -> None:
    run, (chain, _) = store.run(), state_of(store)
    assert run is not None
    pending = queued(store, M)
    version = run.version + 1
    chain = extend(chain, (bytes(update.body) for update in pending))
    folded = [(update.seq, version) for update in pending]
    store.publish(
        Publication(epoch, run.version, version, folded, b"model" + chain, chain, {"w": chain})
    )
    _say(f"published {version}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def check(store: Store, accepted: Iterable[str]) -> None:
    """Whether all that was answered is there, once, and the state is that of the trace."""
    run, (chain, rows) = store.run(), state_of(store)
    assert run is not None
    trace = list(store.trace())
    names = [row.id for row in trace]
    assert len(names) == len(set(names))
    assert set(accepted) <= set(names)
    folded = [row for row in trace if row.order is not None]
    assert [row.order for row in folded] == list(range(run.folded))
    assert run.folded == M * run.version
    assert chain == extend(EMPTY, (body_of(row.id) for row in folded))
    if run.version:
        assert (rows, store.model(run.version)) == ({"w": chain}, b"model" + chain)
    waiting = {row.seq for row in trace if row.order is None}
    assert {update.seq for update in queued(store, 10**6)} == waiting
    assert all(bytes(store.body(row.seq) or b"") == body_of(row.id) for row in trace[run.folded :])
    assert all(store.body(row.seq) is None for row in folded)


if __name__ == "__main__":
    push(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else -1)
