"""One suite for every participation process: a new one joins by one line in PROCESSES."""

import numpy as np
import pytest

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
    SpeedClasses,
    Timetable,
    UniformSteps,
    Visits,
    Work,
    from_visits,
    make,
    make_timetable,
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
    monkeypatch.setattr(make, "_STRETCH", stretch)
    asked = {"workers": WORKERS, "m": 10, "rounds": 250, "rng": 5}
    table = make_timetable(process, **asked)
    table.check()
    assert table.rounds == 250
    for size in (10, 333, 2000):
        assert Timetable.join(list(timetable_blocks(process, **asked, size=size))) == table


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
