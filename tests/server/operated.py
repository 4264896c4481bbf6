"""A run that operators steer, driven by hand."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import closing, contextmanager

from anarchic import wire
from anarchic.server import operate
from anarchic.server.aggregate import FOLLOW_S, STEER_S
from anarchic.server.commands import commands, is_withdrawn, issue, withdrawn
from anarchic.server.operate import check_command
from anarchic.server.refusals import Refusal
from anarchic.server.replay import replay
from anarchic.server.service import Service
from anarchic.server.settings import Limits, ServerSettings
from anarchic.server.store import open_store
from tests.server.make import begun, body

RULES = {
    "afa-cd": {"rule": "afa-cd", "m": 3},
    "afa-cs": {"rule": "afa-cs", "m": 3, "guard": 0.0},
    "momentum": {"rule": "afa-cd", "m": 3, "server_opt": "momentum"},
    "adam": {"rule": "afa-cs", "m": 2, "server_opt": "adam"},
    "scaffold": {"rule": "afa-cd", "m": 2, "local_rule": "scaffold", "workers": 4},
    "mifa": {"rule": "mifa", "m": 2, "rule_options": {"population": 3}, "cap": 3},
    "area": {"rule": "area", "m": 2, "cap": 4, "rule_options": {"history": 3}},
}


def silent(event, **facts):
    """A log."""


class Died(BaseException):
    """Where a process is killed."""


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now

    def time(self):
        return 1e9 + self.now


class World:
    """A run and the process that serves it, which takes a step when it is told to."""

    def __init__(self, place, rules, **store):
        self.place, self.clock, self.store_settings = (
            place,
            Clock(),
            {"keep_payloads": True, **store},
        )
        with closing(open_store(place, **self.store_settings)) as store:
            begun(store, **rules)
        self.accepted = {}  # id -> worker
        self.sent, self.refused = 0, []
        self.start()

    def start(self):
        self.store = open_store(self.place, **self.store_settings)
        limits = Limits(per_worker=100)
        settings = ServerSettings(limits=limits, step_after_s=50.0)
        self.service = Service(self.store, settings, silent, clock=self.clock)
        self.turns(2)
        assert self.service.published.has_one

    def kill(self):
        self.store.close()
        self.start()

    def turns(self, count=1):
        """Let the aggregator go on; it looks for commands with every turn."""
        for _ in range(count):
            self.clock.now += max(STEER_S, FOLLOW_S)
            self.service.aggregator.turn(0.0)

    @property
    def version(self):
        return self.store.run().version

    def push(self, worker, *, base=None, seed=None, **others):
        """Push an update; whether it was accepted."""
        self.sent += 1
        id, base = str(self.sent), self.version if base is None else base
        made = body(worker, id, base, seed=self.sent if seed is None else seed, **others)
        try:
            self.service.steering.check_open()
            self.service.steering.check_base(base)
            new, decoded = self.service.check.check(bytearray(made), None)
        except Refusal as refusal:
            self.refused.append(refusal.code)
            return False
        receipt = Future()
        self.service.collector.queue(new, decoded, receipt)
        self.service.collector.write_next(0.0)
        assert receipt.result().outcome == "accepted"
        self.accepted[id] = worker
        return True

    def train(self, steps, workers=("ann", "bob", "cyn"), **others):
        for _ in range(steps):
            for worker in workers:
                self.push(worker, **others)
                self.turns()
        self.turns(2)

    def give(self, kind, **arguments):
        checked = check_command(self.store, kind, arguments)
        return issue(self.store, kind, checked, by="op", now_s=self.clock.time()).number

    def command(self, kind, **arguments):
        number = self.give(kind, **arguments)
        self.turns(2)
        return operate.settled(self.store, number)

    def params(self, version=None):
        found = self.store.model(self.version if version is None else version)
        return wire.decode_snapshot(found)[1].params

    def check(self):
        """Nothing is lost, nothing counts twice, and folding again gives the same bytes."""
        rows = list(self.store.trace())
        assert sorted(row.id for row in rows) == sorted(self.accepted)
        settled = commands(self.store)
        gone = withdrawn(settled)
        without = {c.arguments.get("without") for c in settled}
        for row in rows:
            if row.version == 0:
                assert is_withdrawn(gone, row.base_version) or row.worker in without
            before = [each for each in gone if row.version and row.version > each[1]]
            assert not is_withdrawn(before, row.base_version)
        assert replay(self.store).equal
        assert self.service.aggregator.failure is None
        return rows


@contextmanager
def worlds(place):
    made = []

    def make(rules=None, **store):
        made.append(World(place, rules or {"m": 3}, **store))
        return made[-1]

    yield make
    for each in made:
        each.store.close()
