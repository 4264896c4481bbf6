import time
import tracemalloc
from dataclasses import dataclass, field

import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import (
    ConstantSteps,
    Course,
    Diurnal,
    Dropout,
    Exponential,
    ExponentialSpread,
    Habits,
    Participation,
    Sampler,
    SpeedClasses,
    Timetable,
    UniformSteps,
    Visits,
    Work,
    horizon,
    make_timetable,
    timetable_blocks,
)

HABITS = Habits(Exponential(1.0), Work(ConstantSteps(1), 1.0))


@dataclass
class Misjudged:
    """Says a pace that is far from its own, and notes the horizons it is asked for."""

    pace_s: float
    horizons: list[float]

    def begin(self, rng: np.random.Generator, workers: int) -> Course:
        return Noting(HABITS.begin(rng, workers), self.horizons)


@dataclass
class Noting:
    """A course that notes the horizons it is asked for, and how many visits it told each time."""

    course: Course
    horizons: list[float] = field(default_factory=list)
    told: list[int] = field(default_factory=list)

    @property
    def next_s(self) -> float:
        return self.course.next_s

    def until(self, horizon_s: float) -> Visits:
        visits = self.course.until(horizon_s)
        self.horizons.append(horizon_s)
        self.told.append(len(visits))
        return visits


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


@dataclass
class Watched:
    """A process whose last course can be looked at."""

    habits: Habits
    course: Noting | None = None

    @property
    def pace_s(self) -> float:
        return self.habits.pace_s

    def begin(self, rng: np.random.Generator, workers: int) -> Course:
        self.course = Noting(self.habits.begin(rng, workers))
        return self.course


def blocks(process: Participation, rounds: int, size: int) -> list[Timetable]:
    return list(timetable_blocks(process, workers=20, m=4, rounds=rounds, rng=3, size=size))


@pytest.mark.parametrize("stretch", [1, 60, 1 << 18])
@pytest.mark.parametrize("size", [4, 47, 300, 10_000])
def test_blocks_are_the_table(monkeypatch, stretch, size):
    monkeypatch.setattr(horizon, "_STRETCH", stretch)
    whole = make_timetable(HABITS, workers=20, m=4, rounds=150, rng=3)
    whole.check()
    parts = blocks(HABITS, 150, size)
    assert Timetable.join(parts) == whole
    most = size // 4
    full, left = divmod(150, most)
    assert [part.rounds for part in parts] == [most] * full + [left] * (left > 0)
    assert [part.before for part in parts] == list(range(0, 150, most))
    assert np.array_equal(np.concatenate([part.staleness for part in parts]), whole.staleness)
    assert np.array_equal(np.concatenate([part.version_s for part in parts]), whole.version_s)
    for part in parts:
        part.check()


def test_a_table_in_stretches_is_as_good_as_one_at_once(monkeypatch):
    """Nothing is drawn at random here but who is slow: stretches must not show in the table."""
    speeds = SpeedClasses({"fast": (0.5, 1.0), "slow": (0.5, 7.3)})
    clockwork = Habits(Exponential(0.0), Work(ConstantSteps(1), 1.0, speeds))
    once = make_timetable(clockwork, workers=20, m=3, rounds=400, rng=0)
    monkeypatch.setattr(horizon, "_STRETCH", 50)
    assert make_timetable(clockwork, workers=20, m=3, rounds=400, rng=0) == once


def test_a_morning_after_a_quiet_night_does_not_flood_the_memory(monkeypatch):
    """All wake at nine: once a morning was seen, stretches are as long as suits a morning."""
    monkeypatch.setattr(horizon, "_STRETCH", 100)
    diurnal = Diurnal(600.0, awake_h=2.0, asleep=0.05, wakes_h=(9, 9))
    watched = Watched(Habits(diurnal, Work(ConstantSteps(1), 1.0)))
    table = make_timetable(watched, workers=50, m=10, rounds=300, rng=0)
    assert table.version_s[-1] > 3 * 86_400
    told, day_s = np.array(watched.course.told), np.array(watched.course.horizons) / 86_400
    assert told.max() < 12 * 100  # a morning is at most 24 h / 2 h as busy as the mean
    assert 75 < told[day_s > 2].max() < 150


def test_the_memory_of_blocks_does_not_grow_with_the_rounds(monkeypatch):
    monkeypatch.setattr(horizon, "_STRETCH", 2000)

    def peak_bytes(rounds: int) -> int:
        tracemalloc.start()
        for _ in timetable_blocks(HABITS, workers=500, m=10, rounds=rounds, rng=0, size=1000):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(4000) < 1.2 * peak_bytes(1000)


def test_workers_that_leave_before_the_last_block_cannot_fill_a_table(monkeypatch):
    monkeypatch.setattr(horizon, "_STRETCH", 10)
    habits = Habits(Exponential(1.0), Work(ConstantSteps(1), 1.0), Dropout(leave=0.05))
    with pytest.raises(ConfigError, match=r"but 3000 are wanted\. Ask for fewer rounds") as refusal:
        make_timetable(habits, workers=20, m=3, rounds=1000, rng=0)
    made = int(str(refusal.value).split()[3])
    assert made > 100
    # The last visits are folded too; the unfinished round is left out.
    assert len(make_timetable(habits, workers=20, m=3, rounds=made // 3, rng=0)) == made


def test_a_block_holds_a_round():
    with pytest.raises(ConfigError, match="at least a round, 1 <= m <= size, got 4 and 3"):
        blocks(HABITS, 10, 3)
    with pytest.raises(ConfigError, match="got 0 and 3"):
        next(timetable_blocks(HABITS, workers=20, m=0, rounds=1, rng=0, size=3))
    assert blocks(HABITS, 0, 4) == []


def test_tables_that_runs_were_trained_on_are_drawn_as_ever():
    """Ten workers that keep hours: the first horizon is too short, and all is drawn afresh."""
    work = Work(UniformSteps(1, 10), 360.0, spread=ExponentialSpread())
    habits = Habits(Diurnal(1.0, awake_h=12.0), work)
    table = make_timetable(habits, workers=10, m=5, rounds=500, rng=0)
    assert table.worker[:10].tolist() == [2, 6, 5, 6, 7, 5, 2, 6, 5, 5]
    assert table.local_steps[:10].tolist() == [4, 2, 1, 2, 8, 7, 7, 7, 8, 1]


@pytest.mark.slow
def test_a_hundred_thousand_workers_and_a_million_updates_take_seconds():
    """A tenth of what benchmarks/timetable.py asks for, with room for a busy machine."""
    work = Work(UniformSteps(1, 10), 2.0, SpeedClasses({"fast": (0.5, 0.5), "slow": (0.5, 2.0)}))
    habits = Habits(Exponential(600.0), work, Dropout(lost=0.1))
    start = time.perf_counter()
    table = make_timetable(habits, workers=100_000, m=100, rounds=10_000, rng=0)
    sampled = Sampler(100_000, 100, UniformSteps(1, 10), max_staleness=4).timetable(0, 10_000)
    seconds = time.perf_counter() - start
    assert len(table) == len(sampled) == 1_000_000
    table.check()
    sampled.check()
    assert seconds < 10
