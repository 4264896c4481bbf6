"""SQLite against a model of a store that fits on a screen, in any order of calls."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from anarchic.server.store import open_store
from anarchic.server.thinning import Stored, superfluous
from tests.server.stored import new, next_version, queued, state_of

Pushes = list[tuple[str, str, bytes]]
pushes = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("123456"), st.sampled_from([b"x", b"y"])),
    max_size=5,
)

MOST_BYTES = 5 * len(b"model 0")


class StoreMachine(RuleBasedStateMachine):
    @initialize(keep=st.booleans(), history=st.integers(1, 3))
    def begin(self, keep: bool, history: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="anarchic-model-"))
        self.keep, self.history = keep, history
        self.known: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.waiting: list[int] = []
        self.folded: list[int] = []
        self.version = self.epoch = 0
        self.stored = [] if keep else [Stored(0, len(b"model 0"))]  # a replay begins with it
        self.open()
        self.store.create({"keep": keep}, b"model 0", b"state 0")
        self.take_lead()

    def open(self) -> None:
        path = self.folder / "run.db"
        self.store = open_store(
            path, keep_payloads=self.keep, history=self.history, history_bytes=MOST_BYTES
        )

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()
        self.take_lead()

    @rule()
    def take_lead(self) -> None:
        self.epoch += 1
        assert self.store.lead() == self.epoch

    @rule(group=pushes)
    def append(self, group: Pushes) -> None:
        receipts = self.store.append([new(*push) for push in group])
        for (worker, name, body), receipt in zip(group, receipts, strict=True):
            key = (worker, name)
            if key not in self.known:
                assert receipt.outcome == "accepted"
                assert receipt.seq > max((seq for seq, _ in self.known.values()), default=0)
                self.known[key] = (receipt.seq, body)
                self.waiting.append(receipt.seq)
            else:
                seq, before = self.known[key]
                assert receipt.outcome == ("duplicate" if body == before else "conflict")
                assert receipt.seq == seq

    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        chosen = data.draw(st.permutations(self.waiting))
        chosen = chosen[: data.draw(st.integers(0, len(chosen)))]
        self.store.publish(next_version(self.store, self.epoch, chosen))
        self.version += 1
        self.stored.append(Stored(self.version, len(f"model {self.version}")))
        gone = superfluous(self.stored, history=self.history, most_bytes=MOST_BYTES)
        self.stored = [each for each in self.stored if each.version not in gone]
        self.folded += chosen
        self.waiting = [seq for seq in self.waiting if seq not in chosen]

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "store"):
            return
        run = self.store.run()
        assert run is not None
        assert (run.version, run.epoch, run.folded) == (self.version, self.epoch, len(self.folded))
        bodies = dict(self.known.values())
        found = [(update.seq, update.body) for update in queued(self.store, 99)]
        assert found == [(seq, bodies[seq]) for seq in self.waiting]
        order = [*enumerate(self.folded), *((None, seq) for seq in self.waiting)]
        assert [(row.order, row.seq) for row in self.store.trace()] == order
        for seq in self.folded:
            assert self.store.body(seq) == (bodies[seq] if self.keep else None)
        for version in range(self.version + 1):
            first = self.keep and version == 0  # a replay begins with it
            kept = first or version in {each.version for each in self.stored}
            expected = f"model {version}".encode() if kept else None
            assert self.store.model(version) == expected
        assert state_of(self.store) == (f"state {self.version}".encode(), {})

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)


StoreMachine.TestCase.settings = settings(
    max_examples=12, stateful_step_count=15, deadline=None, derandomize=True
)
TestStore = pytest.mark.slow(StoreMachine.TestCase)
