"""What workers did and heard, and whether the store agrees.

A ledger is a file of lines that survive the death of who writes them. Of every update it says that
it was sent, wholly or in part, and what was answered, if anything was.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from anarchic.server.replay import replay
from anarchic.server.store import Store

# After these nobody can say whether the update was stored: the server itself may not know.
UNSURE = (500, 503, 507)


class Ledger:
    """Appends lines, each with one system call, so that they are whole even after SIGKILL."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def sends(self, worker: str, id: str, body: bytes, *, whole: bool = True) -> None:
        self._write("send", worker, id, body, whole)

    def hears(self, worker: str, id: str, body: bytes, status: int) -> None:
        self._write("hear", worker, id, body, status)

    def _write(self, what: str, worker: str, id: str, body: bytes, fact: int) -> None:
        line = json.dumps([what, worker, id, hashlib.sha256(body).hexdigest(), fact])
        os.write(self._file, f"{line}\n".encode())


@dataclass
class Story:
    """Of one body under one (worker, id)."""

    whole: int = 0  # times it was sent to the end
    partial: int = 0
    heard: Counter[int] = field(default_factory=Counter)

    @property
    def counts(self) -> str:
        """``once``, ``never`` or ``maybe``: what the answers promise."""
        if self.heard[202] or self.heard[200]:
            return "once"
        unsure = sum(self.heard[status] for status in UNSURE)
        answered = self.heard.total() - unsure
        return "maybe" if self.whole > answered else "never"


Key = tuple[str, str, str]  # worker, id, digest


def stories(paths: Iterable[Path]) -> dict[Key, Story]:
    found: dict[Key, Story] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            what, worker, id, digest, fact = json.loads(line)
            story = found.setdefault((worker, id, digest), Story())
            if what == "hear":
                story.heard[fact] += 1
            elif fact:
                story.whole += 1
            else:
                story.partial += 1
    return found


@dataclass
class Verdict:
    """Figures of a run, once nothing was found wrong with it."""

    versions: int
    folded: int
    waiting: int
    promised: int  # got 202 or 200
    refused: int  # refused, or sent in part only: none of them counted
    unanswered: int  # whole, but no answer told of them
    unanswered_counted: int
    answers: dict[int, int]


def check(store: Store, told: dict[Key, Story], *, m: int) -> Verdict:
    """Hold the trace of a stopped run against what the workers were told."""
    trace = list(store.trace())
    held: Counter[Key] = Counter()
    for row in trace:
        body = store.body(row.seq)
        assert body is not None, f"update {row.seq} has no body"
        held[row.worker, row.id, hashlib.sha256(body).hexdigest()] += 1
    assert not held.keys() - told.keys(), "the store holds updates that nobody sent"
    assert max(held.values(), default=1) == 1, "an update counts twice"
    by_promise: dict[str, set[Key]] = {"once": set(), "never": set(), "maybe": set()}
    for key, story in told.items():
        by_promise[story.counts].add(key)
        assert story.heard[202] <= 1, f"{key} was accepted twice"
    lost = by_promise["once"] - held.keys()
    assert not lost, f"{len(lost)} accepted updates are lost, among them {sorted(lost)[:3]}"
    unwanted = by_promise["never"] & held.keys()
    assert not unwanted, f"{len(unwanted)} refused or partial updates count: {sorted(unwanted)[:3]}"
    folded = [row for row in trace if row.order is not None]
    assert [row.order for row in folded] == list(range(len(folded))), "gaps in the order"
    assert [row.version for row in folded] == [n // m + 1 for n in range(len(folded))]
    assert len(trace) - len(folded) < m, "whole steps were left unfolded"
    run = store.run()
    assert run is not None
    assert (run.version, run.folded) == (len(folded) // m, len(folded))
    again = replay(store)
    assert again.equal, "the parameters differ from those of the replay"
    assert (again.version, again.updates) == (run.version, len(folded))
    return Verdict(
        run.version,
        len(folded),
        len(trace) - len(folded),
        len(by_promise["once"]),
        len(by_promise["never"]),
        len(by_promise["maybe"]),
        len(by_promise["maybe"] & held.keys()),
        dict(sorted(sum((story.heard for story in told.values()), Counter()).items())),
    )
