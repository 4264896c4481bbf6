import numpy as np
import pytest

from anarchic.errors import ConfigError, DataError
from anarchic.participation import (
    Availability,
    ConstantSteps,
    ContinuousTime,
    Exponential,
    Work,
    read_availability,
)


def windows(*rows: tuple[int, float, float]) -> Availability:
    worker, from_s, until_s = zip(*rows, strict=True)
    return Availability.of(
        np.array(worker), np.array(from_s, np.float64), np.array(until_s, np.float64)
    )


# Worker 0 is available in [10, 20) and [30, 40), worker 1 never, worker 2 in [0, 5).
TRACE = windows((2, 0, 5), (0, 30, 40), (0, 10, 20))


@pytest.mark.parametrize(
    ("worker", "now", "idle", "pull", "until"),
    [
        (0, 0, 0, 10, 20),  # waits for its window
        (0, 0, 4, 14, 20),  # idle time counts from there
        (0, 12, 3, 15, 20),
        (0, 12, 8, 30, 40),  # used up exactly: the next window begins
        (0, 12, 10, 32, 40),  # over the gap
        (0, 25, 1, 31, 40),  # free in the gap
        (0, 12, 18, np.inf, np.inf),  # not enough left
        (0, 45, 0, np.inf, np.inf),  # after the last
        (1, 0, 0, np.inf, np.inf),  # never there
        (2, 0, 0, 0, 5),
        (2, 3, 1, 4, 5),
        (2, 3, 2, np.inf, np.inf),
        (3, 0, 0, np.inf, np.inf),  # beyond the last worker of the trace
    ],
)
def test_idle_time_counts_only_while_available(worker, now, idle, pull, until):
    found = TRACE.after(np.array([worker], np.int32), np.array([now * 1.0]), np.array([idle * 1.0]))
    assert [float(x[0]) for x in found] == [pull, until]
    assert TRACE.after_one(worker, float(now), float(idle)) == pull


def test_available_time_between_two_times():
    # Worker 0 is available in [10, 20) and [30, 40).
    assert [TRACE.between(0, 0, t) for t in (5, 14, 25, 33, 50)] == [0, 4, 10, 13, 20]
    assert TRACE.between(0, 14, 33) == 9
    assert TRACE.between(1, 0, 100) == 0
    assert [TRACE.closes_s(0, t) for t in (5, 10, 19, 35)] == [-np.inf, 20, 20, 40]


def test_a_worker_that_is_made_late_idles_as_much_available_time():
    process = ContinuousTime(Exponential(5.0), Work(ConstantSteps(1), 1.0), availability=TRACE)
    stream = process.begin(np.random.default_rng(0), 3)
    # Drawn: free at 14, pulls at 33, which is 6 s of the first window and 3 s of the second.
    assert stream.moved_s(0, 14.0, 33.0, 10.0) == 19.0
    assert stream.moved_s(0, 14.0, 33.0, 16.0) == 35.0
    assert stream.moved_s(0, 14.0, 33.0, 36.0) == np.inf


def test_visits_lie_within_windows_and_those_cut_off_are_lost():
    process = ContinuousTime(Exponential(0.0), Work(ConstantSteps(4), 1.0), availability=TRACE)
    visits = process.visits(np.random.default_rng(0), 3, 100.0)
    rows = zip(visits.worker.tolist(), visits.pull_s.tolist(), visits.push_s.tolist(), strict=True)
    assert sorted(rows) == [
        (0, 10, 14),
        (0, 14, 18),
        (0, 18, np.inf),
        (0, 30, 34),
        (0, 34, 38),
        (0, 38, np.inf),
        (2, 0, 4),
        (2, 4, np.inf),
    ]


def test_windows_that_touch_join():
    trace = windows((0, 5, 8), (0, 0, 5), (1, 8, 9))
    assert trace.worker.tolist() == [0, 1]
    assert trace.until_s.tolist() == [8, 9]


def test_many_windows_agree_with_a_slow_search():
    rng = np.random.default_rng(0)
    rows = []
    for worker in range(20):
        edges = np.cumsum(rng.uniform(0.1, 5, 2 * rng.integers(0, 8)))
        rows += [(worker, a, b) for a, b in edges.reshape(-1, 2).tolist()]
    trace = windows(*rows)
    worker = rng.integers(0, 20, 500).astype(np.int32)
    now, idle = rng.uniform(0, 30, 500), rng.exponential(4, 500)
    pull, until = trace.after(worker, now, idle)
    for i in range(500):
        left, expected = idle[i], (np.inf, np.inf)
        for w, a, b in rows:
            if w == worker[i] and b > now[i]:
                start = max(a, now[i])
                if left < b - start:
                    expected = (start + left, b)
                    break
                left -= b - start
        assert (pull[i], until[i]) == pytest.approx(expected)


def test_rounding_loses_no_window():
    """Work outlasts every window, so each loses one visit, and the next begins the next window."""
    rng = np.random.default_rng(0)
    edges = np.cumsum(rng.uniform(0.1, 5, (300, 20)), axis=1)
    worker = np.repeat(np.arange(300), 10)
    trace = Availability.of(worker, edges[:, ::2].ravel(), edges[:, 1::2].ravel())
    process = ContinuousTime(Exponential(0.0), Work(ConstantSteps(1), 100.0), availability=trace)
    visits = process.visits(rng, 300, 1000.0)
    assert visits.lost.all()
    assert len(visits) == 3000
    assert np.allclose(np.sort(visits.pull_s), np.sort(edges[:, ::2].ravel()))


def test_a_trace_must_fit_the_population():
    process = ContinuousTime(Exponential(1.0), Work(ConstantSteps(1), 1.0), availability=TRACE)
    with pytest.raises(ConfigError, match=r"workers 0..2, but the population is 0..1"):
        process.visits(np.random.default_rng(0), 2, 10.0)


@pytest.mark.parametrize("rows", [[(0, 5, 5)], [(0, 0, 5), (0, 4, 6)]])
def test_impossible_windows_are_refused(rows):
    with pytest.raises(ConfigError, match="empty or overlaps"):
        windows(*rows)


def test_reads_a_file(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("from_s, until_s, country, worker\n10,20.5,x,1\n\n0,5,y,0\n", encoding="utf-8")
    trace = read_availability(path)
    assert trace.worker.tolist() == [0, 1]
    assert trace.from_s.tolist() == [0, 10]
    assert trace.until_s.tolist() == [5, 20.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: column worker is missing"),
        ("worker,from_s\n0,1\n", "line 1: column until_s is missing"),
        ("worker,from_s,until_s\n", "no windows"),
        ("worker,from_s,until_s\n0,1,2\nzero,1,2\n", "line 3, column worker: 'zero'"),
        ("worker,from_s,until_s\n-1,1,2\n", "line 2, column worker: '-1'"),
        ("worker,from_s,until_s\n0,noon,2\n", "line 2, column from_s: 'noon'"),
        ("worker,from_s,until_s\n0,1,nan\n", "line 2, column until_s: 'nan'"),
        ("worker,from_s,until_s\n0,-1,2\n", "line 2, column from_s: '-1'"),
        ("worker,from_s,until_s\n0,3,2\n", "line 2, column until_s: the window ends at 2.0 s"),
        ("worker,from_s,until_s\n0,3\n", "line 2, column until_s: the line ends before it"),
        (
            "worker,from_s,until_s\n0,3,9\n1,0,4\n\n0,1,4\n",
            "line 2, column from_s: worker 0 becomes available at 3.0 s, .* line 5",
        ),
    ],
)
def test_bad_rows_are_named(tmp_path, text, message):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_availability(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.csv"):
        read_availability(tmp_path / "nowhere.csv")
