"""One suite for every participation process: a new one joins by one line in PROCESSES."""

from functools import partial

import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import (
    Availability,
    ConstantSteps,
    ContinuousTime,
    Diurnal,
    Dropout,
    Exponential,
    ExponentialTime,
    LogNormal,
    LogNormalTime,
    Sampler,
    SpeedClasses,
    Synchronous,
    Timetable,
    UniformSteps,
    Visits,
    Work,
    drawing,
    from_visits,
    make_timetable,
    sampler,
    synchronous,
    timetable,
    timetable_blocks,
)

WORKERS = 400
HORIZON_S = 2000.0

STEADY = Work(ConstantSteps(5), step_s=4.0)
MIXED = Work(
    UniformSteps(1, 10),
    step_s=4.0,
    speeds=SpeedClasses({"fast": (0.5, 0.5), "slow": (0.5, 4.0)}),
    time_distribution=ExponentialTime(),
)


def trace() -> Availability:
    """Three windows of 500 s for each worker, 100 s apart, everyone shifted a little."""
    worker = np.repeat(np.arange(WORKERS), 3)
    from_s = np.tile([0.0, 600.0, 1200.0], WORKERS) + np.repeat(np.arange(WORKERS) % 50, 3)
    return Availability.of(worker, from_s, from_s + 500.0)


PROCESSES = {
    "exponential": ContinuousTime(Exponential(60.0), STEADY),
    "always working": ContinuousTime(Exponential(0.0), MIXED),
    "speed classes": ContinuousTime(Exponential(60.0), MIXED),
    "log-normal": ContinuousTime(
        LogNormal(60.0, 1.0), Work(UniformSteps(1, 6), 4.0, time_distribution=LogNormalTime(1))
    ),
    "diurnal": ContinuousTime(Diurnal(60.0, asleep=0.05), MIXED),
    "drop-outs": ContinuousTime(Exponential(60.0), MIXED, Dropout(lost_share=0.3, leave=0.01)),
    "trace": ContinuousTime(Exponential(60.0), MIXED, availability=trace()),
    "everything": ContinuousTime(
        Diurnal(60.0, asleep=0.5),
        MIXED,
        Dropout(lost_share=0.1, leave=0.01),
        trace(),
    ),
}


@pytest.fixture(params=PROCESSES.values(), ids=PROCESSES.keys())
def process(request):
    return request.param


@pytest.fixture
def visits(process):
    return process.visits(np.random.default_rng(1), WORKERS, HORIZON_S)


def test_repeats_with_the_seed(process, visits):
    again = process.visits(np.random.default_rng(1), WORKERS, HORIZON_S)
    other = process.visits(np.random.default_rng(2), WORKERS, HORIZON_S)
    for name in ("worker", "pull_s", "push_s", "local_steps"):
        assert np.array_equal(getattr(again, name), getattr(visits, name))
    assert not np.array_equal(other.pull_s, visits.pull_s)


def test_visits_are_possible(visits):
    assert len(visits) > WORKERS
    visits.check(WORKERS)
    assert visits.worker.dtype == visits.local_steps.dtype == np.int32
    assert visits.pull_s.min() >= 0
    assert visits.pull_s.max() < HORIZON_S
    assert visits.push_s[~visits.lost].max() <= HORIZON_S


def test_visits_of_one_worker_follow_each_other(visits):
    order = np.argsort(visits.worker, kind="stable")
    worker, pull, push = (x[order] for x in (visits.worker, visits.pull_s, visits.push_s))
    end = np.where(np.isinf(push), pull, push)
    same = worker[1:] == worker[:-1]
    assert same.any()
    assert (pull[1:] >= end[:-1])[same].all()


def test_a_longer_horizon_keeps_the_distribution_of_earlier_visits(process):
    short = process.visits(np.random.default_rng(3), WORKERS, HORIZON_S / 2)
    long = process.visits(np.random.default_rng(4), WORKERS, HORIZON_S).until(HORIZON_S / 2)
    counts = [np.bincount(v.worker[~v.lost], minlength=WORKERS) for v in (short, long)]
    error = np.sqrt(sum(c.var() for c in counts) / WORKERS)
    assert abs(counts[0].mean() - counts[1].mean()) < 4 * error
    # Two-sample Kolmogorov-Smirnov on the push times; 2.2 is a chance of about 1 in 10,000 for
    # independent times, and those of one worker are more even than that.
    a, b = (np.sort(v.push_s[~v.lost]) for v in (short, long))
    everywhere = np.concatenate((a, b))
    gap = np.abs(
        np.searchsorted(a, everywhere, "right") / len(a)
        - np.searchsorted(b, everywhere, "right") / len(b)
    ).max()
    assert gap < 2.2 * np.sqrt(1 / len(a) + 1 / len(b))


def test_a_horizon_of_zero_gives_no_visits(process):
    assert len(process.visits(np.random.default_rng(0), WORKERS, 0.0)) == 0


def test_the_timetable_is_possible(visits):
    table = from_visits(visits, 10, WORKERS)
    table.check()
    assert len(table) == np.count_nonzero(~visits.lost)


def test_the_timetable_has_the_rounds_asked_for(process):
    table = make_timetable(process, workers=WORKERS, m=10, rounds=100, rng=5)
    table.check()
    assert (len(table), table.rounds, table.m, table.workers) == (1000, 100, 10, WORKERS)
    assert make_timetable(process, workers=WORKERS, m=10, rounds=100, rng=5) == table


@pytest.mark.parametrize("stretch", [97, 5000])
def test_blocks_are_the_timetable(process, monkeypatch, stretch):
    monkeypatch.setattr(drawing, "STRETCH", stretch)
    asked = {"workers": WORKERS, "m": 10, "rounds": 250, "rng": 5}
    table = make_timetable(process, **asked)
    table.check()
    assert table.rounds == 250
    for size in (10, 333, 2000):
        assert Timetable.join(list(timetable_blocks(process, **asked, size=size))) == table


# Every way to make a table of so many rounds; m = 5, and the trace ends after about 500 of them.
CONTINUOUS = {
    name: partial(make_timetable, process, workers=WORKERS, m=5)
    for name, process in PROCESSES.items()
}
TABLES = CONTINUOUS | {
    "sampler": Sampler(10, 5, ConstantSteps(5)).timetable,
    "late": Sampler(10, 5, UniformSteps(1, 10), max_staleness=4).timetable,
    "redrawn": Sampler(100, 5, UniformSteps(1, 3), max_staleness=2).timetable,
    "replaced": Sampler(10, 5, UniformSteps(1, 3), replace=True).timetable,
    "by probability": Sampler(
        30, 5, UniformSteps(1, 3), 1, probabilities=np.arange(1, 31) / 465
    ).timetable,
    "rounds": Synchronous(10, 5, MIXED).timetable,
    "rounds with drop-outs": Synchronous(10, 5, MIXED, 0.3, timeout_s=9.0).timetable,
}


@pytest.fixture(params=TABLES.values(), ids=TABLES.keys())
def table_of(request):
    return request.param


@pytest.mark.parametrize("seed", range(4))
def test_a_longer_table_begins_with_a_shorter_one(table_of, seed):
    rng = np.random.default_rng(seed)
    lengths = sorted({1, 149, 150, 151, *rng.integers(1, 400, 4).tolist()})
    tables = [table_of(rng=seed, rounds=rounds) for rounds in lengths]
    for table, rounds in zip(tables, lengths, strict=True):
        assert table.rounds == rounds
        assert tables[-1].cut(rounds) == table
        assert tables[-1].begins_with(table)
    assert not tables[0].begins_with(tables[-1])
    assert not table_of(rng=seed + 1, rounds=lengths[-1]).begins_with(tables[-2])


def test_small_blocks_and_stretches_begin_alike_too(table_of, monkeypatch):
    """As tables do that are longer than one block."""
    monkeypatch.setattr(drawing, "STRETCH", 97)
    for module in (sampler, synchronous):
        monkeypatch.setattr(module, "_BLOCK_ROWS", 64)
    assert table_of(rng=1, rounds=300).cut(211) == table_of(rng=1, rounds=211)


def test_later_versions_are_those_that_a_longer_table_starts_from(table_of):
    table, longer = (table_of(rng=2, rounds=rounds) for rounds in (180, 400))
    rest = longer.base_version[len(table) :]
    assert set(rest[rest <= 180]) <= set(table.later)
    assert table.later[-1] == 180
    assert table.cut(170).later is None


CLOCKED = {
    **CONTINUOUS,
    "rounds": Synchronous(10, 5, MIXED).timetable,
    "rounds with drop-outs": Synchronous(10, 5, MIXED, 0.3, timeout_s=9.0).timetable,
}


@pytest.mark.parametrize("clocked", CLOCKED.values(), ids=CLOCKED.keys())
def test_a_table_ends_at_a_virtual_time(clocked):
    table = clocked(rng=3, rounds=300)
    times = table.version_s
    for rounds in (0, 1, 149, 180):
        between = (times[rounds] + (times[rounds - 1] if rounds else 0)) / 2
        assert clocked(rng=3, until_s=between) == table.cut(rounds)
    assert clocked(rng=3, until_s=times[179]) == table.cut(180)
    assert clocked(rng=3, rounds=20, until_s=times[179]) == table.cut(20)
    assert clocked(rng=3, rounds=200, until_s=times[19]) == table.cut(20)


def test_a_process_that_ends_before_the_time_gives_all_its_rounds():
    ending = CLOCKED["everything"]
    table = ending(rng=3, until_s=1e6)
    assert table.rounds > 300
    assert table.begins_with(ending(rng=3, rounds=300))
    with pytest.raises(ConfigError, match="seems to have ended"):
        ending(rng=3, rounds=table.rounds + 1)
    assert ending(rng=3, rounds=table.rounds) == table


def test_a_table_without_an_end_is_refused():
    for end, problem in (
        ({}, "give rounds, until_s or both"),
        ({"until_s": np.inf}, "0 <= until_s < inf, got inf"),
        ({"until_s": -1.0}, "got -1"),
        ({"until_s": 1.0, "rounds": -1}, "rounds >= 0, got -1"),
    ):
        for clocked in (CLOCKED["exponential"], CLOCKED["rounds"]):
            with pytest.raises(ConfigError, match=problem):
                clocked(rng=0, **end)


def test_a_time_that_would_fill_the_memory_is_refused(monkeypatch):
    monkeypatch.setattr(timetable, "MOST_ROWS", 10_000)
    for clocked in (CLOCKED["exponential"], CLOCKED["rounds"]):
        with pytest.raises(ConfigError, match="more than 10000 updates up to until_s=1e"):
            clocked(rng=0, until_s=1e9)


def test_a_stream_read_in_pieces_gives_possible_visits(process):
    stream = process.begin(np.random.default_rng(6), WORKERS)
    parts = [stream.until(horizon_s) for horizon_s in (0.0, 1.0, 90.0, 90.0, 1000.0, HORIZON_S)]
    since = 0.0
    for part, horizon_s in zip(parts, (0.0, 1.0, 90.0, 90.0, 1000.0, HORIZON_S), strict=True):
        assert ((since <= part.pull_s) & (part.pull_s < horizon_s)).all()
        since = horizon_s
    assert stream.next_s >= HORIZON_S
    together = Visits.join(parts)
    together.check(WORKERS)
    at_once = process.visits(np.random.default_rng(6), WORKERS, HORIZON_S)
    found, expected = (
        np.count_nonzero(~told.lost) for told in (together.until(HORIZON_S), at_once)
    )
    assert abs(found - expected) < 6 * np.sqrt(expected)  # other draws, the same process
