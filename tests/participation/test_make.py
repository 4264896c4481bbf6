import time
import tracemalloc
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import (
    ConstantSteps,
    ContinuousTime,
    Diurnal,
    Dropout,
    Exponential,
    ExponentialTime,
    Participation,
    Sampler,
    SpeedClasses,
    Synchronous,
    Timetable,
    UniformSteps,
    Visits,
    VisitStream,
    Work,
    drawing,
    make_timetable,
    timetable_blocks,
)

PROCESS = ContinuousTime(Exponential(1.0), Work(ConstantSteps(1), 1.0))


@dataclass
class Misjudged:
    """A process with a wrong pace; notes the horizons it is asked for."""

    pace_s: float
    horizons: list[float]

    def begin(self, rng: np.random.Generator, workers: int) -> VisitStream:
        return Noting(PROCESS.begin(rng, workers), self.horizons)


@dataclass
class Noting:
    """A stream that notes the horizons it is asked for and the visits it returned for each."""

    stream: VisitStream
    horizons: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    @property
    def next_s(self) -> float:
        return self.stream.next_s

    def until(self, horizon_s: float) -> Visits:
        visits = self.stream.until(horizon_s)
        self.horizons.append(horizon_s)
        self.counts.append(len(visits))
        return visits


@dataclass
class Losing:
    """A stream whose visits are all lost after a minute."""

    stream: VisitStream

    @property
    def next_s(self) -> float:
        return self.stream.next_s

    def until(self, horizon_s: float) -> Visits:
        visits = self.stream.until(horizon_s)
        return replace(visits, push_s=np.where(visits.push_s < 60.0, visits.push_s, np.inf))


@pytest.mark.parametrize("pace_s", [1e-4, 0.5, 20.0])
def test_a_wrong_pace_is_corrected(pace_s):
    process = Misjudged(pace_s, [])
    table = make_timetable(process, workers=20, m=4, rounds=50, rng=0)
    table.check()
    assert table.rounds == 50
    assert table.version_s[-1] == pytest.approx(20.0, rel=0.2)  # 20 workers, a push every 2 s
    assert process.horizons == sorted(set(process.horizons))


def test_a_seed_and_its_generator_give_the_same_table():
    tables = [
        make_timetable(PROCESS, workers=20, m=4, rounds=50, rng=rng)
        for rng in (3, np.random.default_rng(3), 4)
    ]
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]


def test_no_rounds_make_an_empty_table():
    assert len(make_timetable(PROCESS, workers=20, m=4, rounds=0, rng=0)) == 0


def test_workers_that_all_leave_cannot_fill_a_table():
    process = ContinuousTime(Exponential(1.0), Work(ConstantSteps(1), 1.0), Dropout(leave=0.5))
    with pytest.raises(ConfigError, match=r"but 1000 are wanted\. Ask for fewer rounds"):
        make_timetable(process, workers=20, m=10, rounds=100, rng=0)


def test_impossible_requests_are_refused():
    with pytest.raises(ConfigError, match="m >= 1, got 20 and 0"):
        make_timetable(PROCESS, workers=20, m=0, rounds=1, rng=0)
    with pytest.raises(ConfigError, match="rounds >= 0, got -1"):
        make_timetable(PROCESS, workers=20, m=1, rounds=-1, rng=0)


@dataclass
class Watched:
    """A process that keeps its last stream."""

    process: ContinuousTime
    stream: Noting | None = None

    @property
    def pace_s(self) -> float:
        return self.process.pace_s

    def begin(self, rng: np.random.Generator, workers: int) -> VisitStream:
        self.stream = Noting(self.process.begin(rng, workers))
        return self.stream


def blocks(process: Participation, rounds: int, size: int) -> list[Timetable]:
    return list(timetable_blocks(process, workers=20, m=4, rounds=rounds, rng=3, size=size))


@pytest.mark.parametrize("stretch", [1, 60, 1 << 18])
@pytest.mark.parametrize("size", [4, 47, 300, 10_000])
def test_blocks_are_the_table(monkeypatch, stretch, size):
    monkeypatch.setattr(drawing, "STRETCH", stretch)
    whole = make_timetable(PROCESS, workers=20, m=4, rounds=150, rng=3)
    whole.check()
    parts = blocks(PROCESS, 150, size)
    assert Timetable.join(parts) == whole
    most = size // 4
    full, left = divmod(150, most)
    assert [part.rounds for part in parts] == [most] * full + [left] * (left > 0)
    assert [part.before for part in parts] == list(range(0, 150, most))
    assert np.array_equal(np.concatenate([part.staleness for part in parts]), whole.staleness)
    assert np.array_equal(np.concatenate([part.version_s for part in parts]), whole.version_s)
    for part in parts:
        part.check()


def test_stretches_do_not_change_the_table(monkeypatch):
    """Only who is slow is random here, so the stretches cannot change the table."""
    speeds = SpeedClasses({"fast": (0.5, 1.0), "slow": (0.5, 7.3)})
    clockwork = ContinuousTime(Exponential(0.0), Work(ConstantSteps(1), 1.0, speeds))
    once = make_timetable(clockwork, workers=20, m=3, rounds=400, rng=0)
    monkeypatch.setattr(drawing, "STRETCH", 50)
    assert make_timetable(clockwork, workers=20, m=3, rounds=400, rng=0) == once


def test_a_busy_morning_after_a_quiet_night_stays_within_a_stretch(monkeypatch):
    """All wake at nine: after the first morning, stretches are sized for a morning."""
    monkeypatch.setattr(drawing, "STRETCH", 100)
    diurnal = Diurnal(600.0, awake_h=2.0, asleep=0.05, wakes_h=(9, 9))
    watched = Watched(ContinuousTime(diurnal, Work(ConstantSteps(1), 1.0)))
    table = make_timetable(watched, workers=50, m=10, rounds=300, rng=0)
    assert table.version_s[-1] > 3 * 86_400
    counts, day_s = np.array(watched.stream.counts), np.array(watched.stream.horizons) / 86_400
    assert counts.max() < 12 * 100  # a morning is at most 24 h / 2 h as busy as the mean
    assert 75 < counts[day_s > 2].max() < 150


def test_the_memory_of_blocks_does_not_grow_with_the_rounds(monkeypatch):
    monkeypatch.setattr(drawing, "STRETCH", 2000)

    def peak_bytes(rounds: int) -> int:
        tracemalloc.start()
        for _ in timetable_blocks(PROCESS, workers=500, m=10, rounds=rounds, rng=0, size=1000):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(4000) < 1.2 * peak_bytes(1000)


def test_workers_that_leave_before_the_last_block_cannot_fill_a_table(monkeypatch):
    monkeypatch.setattr(drawing, "STRETCH", 10)
    process = ContinuousTime(Exponential(1.0), Work(ConstantSteps(1), 1.0), Dropout(leave=0.05))
    with pytest.raises(ConfigError, match=r"but 3000 are wanted\. Ask for fewer rounds") as refusal:
        make_timetable(process, workers=20, m=3, rounds=1000, rng=0)
    made = int(str(refusal.value).split()[3])
    assert made > 100
    # The last visits are folded too; the unfinished round is left out.
    assert len(make_timetable(process, workers=20, m=3, rounds=made // 3, rng=0)) == made


def test_a_block_smaller_than_a_round_is_refused():
    with pytest.raises(ConfigError, match="at least one round: 1 <= m <= size, got 4 and 3"):
        blocks(PROCESS, 10, 3)
    with pytest.raises(ConfigError, match="got 0 and 3"):
        next(timetable_blocks(PROCESS, workers=20, m=0, rounds=1, rng=0, size=3))
    assert blocks(PROCESS, 0, 4) == []


def test_tables_of_150_rounds_are_those_of_earlier_releases():
    """Which drew all rounds at once: recorded results with that many have these tables."""
    work = Work(UniformSteps(1, 10), 360.0, time_distribution=ExponentialTime())
    # Ten diurnal workers: the first horizon is too short, and all is drawn again.
    process = ContinuousTime(Diurnal(1.0, awake_h=12.0), work)
    table = make_timetable(process, workers=10, m=5, rounds=150, rng=0)
    assert table.worker[-10:].tolist() == [3, 9, 3, 8, 8, 9, 9, 9, 9, 8]
    assert table.local_steps[-10:].tolist() == [10, 8, 8, 1, 7, 2, 4, 4, 1, 2]
    table = Synchronous(10, 5, work, lost_share=0.3, timeout_s=9.0).timetable(0, 150)
    assert table.worker[-10:].tolist() == [4, 6, 3, 1, 2, 5, 4, 9, 8, 1]
    assert table.local_steps[-10:].tolist() == [1, 7, 8, 10, 6, 7, 5, 3, 5, 10]
    table = Sampler(100, 20, UniformSteps(1, 10), max_staleness=4).timetable(0, 150)
    assert table.digest()[:16] == "1043a93981458af9"


def test_a_process_that_only_loses_visits_has_ended(monkeypatch):
    """From some time on; otherwise the next round would be looked for without end."""
    monkeypatch.setattr(drawing, "IN_VAIN", 1000)
    watched = Watched(ContinuousTime(Exponential(1.0), Work(ConstantSteps(1), 1.0)))
    begin = watched.begin
    watched.begin = lambda rng, workers: Losing(begin(rng, workers))
    with pytest.raises(ConfigError, match="seems to have ended, but 2000 are wanted"):
        make_timetable(watched, workers=20, m=4, rounds=500, rng=0)


@pytest.mark.slow
def test_a_hundred_thousand_workers_and_a_million_updates_take_seconds():
    """A tenth of what benchmarks/timetable.py asks for, with room for a busy machine."""
    work = Work(UniformSteps(1, 10), 2.0, SpeedClasses({"fast": (0.5, 0.5), "slow": (0.5, 2.0)}))
    process = ContinuousTime(Exponential(600.0), work, Dropout(lost_share=0.1))
    start = time.perf_counter()
    table = make_timetable(process, workers=100_000, m=100, rounds=10_000, rng=0)
    sampled = Sampler(100_000, 100, UniformSteps(1, 10), max_staleness=4).timetable(0, 10_000)
    seconds = time.perf_counter() - start
    assert len(table) == len(sampled) == 1_000_000
    table.check()
    sampled.check()
    assert seconds < 10
