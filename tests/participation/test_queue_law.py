"""The event queue against a loop over events that shares nothing with it but the definitions.

The loop below keeps a list of what each worker does next and always looks for the earliest. It
draws with Python's own generator, so agreement is in distribution: means over seeds are compared.
"""

import random
from statistics import mean, stdev

import numpy as np
import pytest

from anarchic.participation import (
    ConstantSteps,
    ContinuousTime,
    Coupling,
    Exponential,
    ExponentialTime,
    MeasuredSpeeds,
    Work,
    make_timetable,
)

M, WORKERS, ROUNDS, SEEDS = 3, 8, 250, 12
FACTORS = [1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 5.0]  # of a mean work time of 1 s
IDLE_S = 1.0


class Loop:
    """Eight workers and a server, written from the definitions in docs/participation.md."""

    def __init__(
        self, seed, *, limit=None, bound=None, retries=0, timer=None, picks=None, skip=False
    ):
        self.rnd = random.Random(seed)
        self.limit, self.bound, self.retries = limit, bound, retries
        self.timer, self.picks, self.skip = timer, picks, skip
        self.now, self.version, self.arrived = 0.0, 0, 0
        self.wants = [np.inf] * WORKERS  # when each worker comes
        self.done = [np.inf] * WORKERS  # when each worker has finished its work
        self.base, self.tries, self.sent = [0] * WORKERS, [0] * WORKERS, [-1] * WORKERS
        self.line, self.todo = [], [[] for _ in range(WORKERS)]
        self.staleness, self.senders, self.steps_s = [], [], []
        self.refused = self.skipped = 0

    def work(self, i, base):
        self.base[i] = base
        self.done[i] = self.now + self.rnd.expovariate(1 / FACTORS[i])

    def rest(self, i):
        self.wants[i] = self.now + self.rnd.expovariate(1 / IDLE_S)

    def step(self):
        if self.arrived:
            self.version, self.arrived = self.version + 1, 0
            self.steps_s.append(self.now)

    def give(self):
        """The server picks somebody."""
        if self.picks == "random":
            i = self.rnd.randrange(WORKERS)
        else:
            i = self.rnd.choice([w for w in range(WORKERS) if self.done[w] == np.inf])
        if self.done[i] < np.inf:
            self.todo[i].append(self.version)
        else:
            self.work(i, self.version)

    def enter(self, i):
        """A worker's turn has come."""
        if self.skip and self.sent[i] == self.version:
            self.skipped += 1
            self.rest(i)
        else:
            self.work(i, self.version)

    def finish(self, i):
        self.done[i] = np.inf
        late = self.version - self.base[i]
        if self.bound is not None and late > self.bound:
            self.refused += 1
            if self.tries[i] < self.retries:
                self.tries[i] += 1
                self.work(i, self.version)
                return
        else:
            self.staleness.append(late)
            self.senders.append(i)
            self.sent[i] = self.base[i]
            self.arrived += 1
            if self.arrived == M:
                self.step()
        self.tries[i] = 0
        if self.picks:
            if self.todo[i]:
                self.work(i, self.todo[i].pop(0))
            self.give()
        else:
            self.rest(i)

    def run(self):
        if self.picks:
            for _ in range(self.limit):
                self.give()
        else:
            for i in range(WORKERS):
                self.rest(i)
        ticks = 1
        while self.version < ROUNDS:
            tick = ticks * self.timer if self.timer else np.inf
            self.now = min(*self.wants, *self.done, tick)
            if self.now == tick:
                self.step()
                ticks += 1
            elif self.now in self.done:
                self.finish(self.done.index(self.now))
            else:
                i = self.wants.index(self.now)
                self.wants[i] = np.inf
                self.line.append(i)
            working = sum(done < np.inf for done in self.done)
            while not self.picks and self.line and (self.limit is None or working < self.limit):
                self.enter(self.line.pop(0))
                working = sum(done < np.inf for done in self.done)
        slow = sum(FACTORS[i] > 1 for i in self.senders) / len(self.senders)
        late = np.array(self.staleness)
        count = len(late)
        return {
            "staleness": late.mean(),
            "very late": (late > 3).mean(),
            "share of the slow": slow,
            "round": self.now / ROUNDS,
            "updates per round": count / ROUNDS,
            "refused": self.refused / count,
            "skipped": self.skipped / count,
        }


def ours(seed, coupling):
    work = Work(
        ConstantSteps(1),
        1.0,
        MeasuredSpeeds(np.array(FACTORS)),
        time_distribution=ExponentialTime(),
    )
    process = ContinuousTime(Exponential(IDLE_S), work)
    table = make_timetable(
        process, workers=WORKERS, m=M, rounds=ROUNDS, rng=seed, coupling=coupling
    )
    total, count = table.wasted.total, len(table)
    return {
        "staleness": table.staleness.mean(),
        "very late": (table.staleness > 3).mean(),
        "share of the slow": np.isin(table.worker, [5, 6, 7]).mean(),
        "round": table.version_s[-1] / ROUNDS,
        "updates per round": count / ROUNDS,
        "refused": total["refused"] / count,
        "skipped": total["skipped"] / count,
    }


CASES = {
    "limit": (Coupling(max_concurrent=3), {"limit": 3}),
    "refusal": (Coupling(refuse_staleness=1), {"bound": 1}),
    "retries": (Coupling(refuse_staleness=1, retries=4), {"bound": 1, "retries": 4}),
    "timer": (Coupling(step_every_s=0.7), {"timer": 0.7}),
    "skip": (Coupling(skip_unchanged=True), {"skip": True}),
    "random": (
        Coupling(server_picks="random", max_concurrent=6),
        {"picks": "random", "limit": 6},
    ),
    "free": (Coupling(server_picks="free", max_concurrent=6), {"picks": "free", "limit": 6}),
    "together": (
        Coupling(max_concurrent=5, refuse_staleness=2, retries=1, skip_unchanged=True),
        {"limit": 5, "bound": 2, "retries": 1, "skip": True},
    ),
}


@pytest.mark.parametrize(("coupling", "settings"), CASES.values(), ids=CASES.keys())
def test_means_agree_with_an_independent_loop(coupling, settings):
    found = [ours(seed, coupling) for seed in range(SEEDS)]
    expected = [Loop(seed, **settings).run() for seed in range(100, 100 + SEEDS)]
    for name in expected[0]:
        one, two = ([run[name] for run in runs] for runs in (found, expected))
        error = (stdev(one) ** 2 / SEEDS + stdev(two) ** 2 / SEEDS) ** 0.5
        # t of about 22 degrees of freedom: 4.7 by chance once in 10,000.
        assert abs(mean(one) - mean(two)) <= 4.7 * error + 1e-9, (name, mean(one), mean(two), error)
