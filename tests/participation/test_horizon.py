import time
from dataclasses import dataclass

import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import (
    ConstantSteps,
    Dropout,
    Exponential,
    Habits,
    Sampler,
    SpeedClasses,
    UniformSteps,
    Visits,
    Work,
    make_timetable,
)

HABITS = Habits(Exponential(1.0), Work(ConstantSteps(1), 1.0))


@dataclass
class Misjudged:
    """Says a pace that is far from its own, and notes the horizons it is asked for."""

    pace_s: float
    horizons: list[float]

    def visits(self, rng: np.random.Generator, workers: int, horizon_s: float) -> Visits:
        self.horizons.append(horizon_s)
        return HABITS.visits(rng, workers, horizon_s)


@pytest.mark.parametrize("pace_s", [1e-4, 0.5, 20.0])
def test_a_wrong_pace_is_made_up_for(pace_s):
    process = Misjudged(pace_s, [])
    table = make_timetable(process, workers=20, m=4, rounds=50, rng=0)
    table.check()
    assert table.rounds == 50
    assert table.version_s[-1] == pytest.approx(20.0, rel=0.2)  # 20 workers, a push every 2 s
    assert process.horizons == sorted(set(process.horizons))


def test_a_seed_is_as_good_as_a_generator():
    tables = [
        make_timetable(HABITS, workers=20, m=4, rounds=50, rng=rng)
        for rng in (3, np.random.default_rng(3), 4)
    ]
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]


def test_no_rounds_make_an_empty_table():
    assert len(make_timetable(HABITS, workers=20, m=4, rounds=0, rng=0)) == 0


def test_workers_that_all_leave_cannot_fill_a_table():
    habits = Habits(Exponential(1.0), Work(ConstantSteps(1), 1.0), Dropout(leave=0.5))
    with pytest.raises(ConfigError, match=r"but 1000 are wanted\. Ask for fewer rounds"):
        make_timetable(habits, workers=20, m=10, rounds=100, rng=0)


def test_impossible_requests_are_refused():
    with pytest.raises(ConfigError, match="m >= 1, got 20 and 0"):
        make_timetable(HABITS, workers=20, m=0, rounds=1, rng=0)
    with pytest.raises(ConfigError, match="rounds >= 0, got -1"):
        make_timetable(HABITS, workers=20, m=1, rounds=-1, rng=0)


@pytest.mark.slow
def test_a_hundred_thousand_workers_and_a_million_updates_take_seconds():
    """A tenth of what benchmarks/timetable.py asks for, with room for a busy machine."""
    work = Work(UniformSteps(5), 2.0, SpeedClasses({"fast": (0.5, 0.5), "slow": (0.5, 2.0)}))
    habits = Habits(Exponential(600.0), work, Dropout(lost=0.1))
    start = time.perf_counter()
    table = make_timetable(habits, workers=100_000, m=100, rounds=10_000, rng=0)
    sampled = Sampler(100_000, 100, UniformSteps(5), versions_back=5).timetable(0, 10_000)
    seconds = time.perf_counter() - start
    assert len(table) == len(sampled) == 1_000_000
    table.check()
    sampled.check()
    assert seconds < 10
