import heapq
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anarchic.errors import ConfigError
from anarchic.participation import Timetable, Visits, Wasted, from_visits
from anarchic.participation.make import VisitFolding
from anarchic.participation.timetable import running_numbers


def visits(*rows: tuple[int, float, float, int]) -> Visits:
    """From (worker, pull, push, K) rows."""
    worker, pull, push, steps = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Visits(
        np.array(worker, np.int32),
        np.array(pull, np.float64),
        np.array(push, np.float64),
        np.array(steps, np.int32),
    )


def three_workers() -> Timetable:
    """Worker 0 is quick, worker 1 slow, worker 2 comes once; a step at every second push.

    time      0    1    2    3    4    5    6
    worker 0  |pull-push|pull-push|    |pull-push      pushes at 2, 4, 6
    worker 1  |pull-----------push|                    pushes at 3 (pulled at 0)
    worker 2            |pull----------push            pushes at 5 (pulled at 2)
    versions                 1(3)      2(5)
    """
    return from_visits(
        visits((0, 0, 2, 1), (0, 2, 4, 2), (0, 5, 6, 3), (1, 0, 3, 4), (2, 2, 5, 5)), 2, 3
    )


def test_three_workers_by_hand():
    table = three_workers()
    assert table.worker.tolist() == [0, 1, 0, 2, 0]
    assert table.visit.tolist() == [0, 0, 1, 0, 2]
    assert table.push_s.tolist() == [2, 3, 4, 5, 6]
    assert table.pull_s.tolist() == [0, 0, 2, 2, 5]
    assert table.local_steps.tolist() == [1, 4, 2, 5, 3]
    assert table.version_s.tolist() == [3, 5]
    # Worker 0 pulls at 5, the moment at which version 2 appears: it has been folded.
    assert table.base_version.tolist() == [0, 0, 0, 0, 2]
    assert table.staleness.tolist() == [0, 0, 1, 1, 0]
    assert (len(table), table.rounds, table.workers, table.m) == (5, 2, 3, 2)
    table.check()


def test_a_slow_worker_grows_stale_while_a_quick_one_steps_alone():
    table = from_visits(visits((0, 0, 1, 1), (0, 1, 2, 1), (0, 2, 3, 1), (1, 0, 4, 1)), 1, 2)
    assert table.worker.tolist() == [0, 0, 0, 1]
    assert table.base_version.tolist() == [0, 1, 2, 0]
    assert table.staleness.tolist() == [0, 0, 0, 3]


def test_pushes_at_one_time_are_folded_by_worker_number():
    table = from_visits(visits((2, 0, 1, 1), (0, 0, 1, 1), (1, 0, 1, 1), (0, 1, 1, 9)), 1, 3)
    assert table.worker.tolist() == [0, 0, 1, 2]
    assert table.local_steps.tolist() == [1, 9, 1, 1]  # worker 0's own order is kept
    assert table.visit.tolist() == [0, 1, 0, 0]


def test_no_update_starts_from_a_version_that_it_helps_to_make():
    table = from_visits(visits((0, 5, 5, 1), (1, 5, 5, 1), (2, 5, 6, 1)), 2, 3)
    assert table.base_version.tolist() == [0, 0, 1]
    table.check()


def test_visits_that_never_push_have_no_row_and_no_number():
    table = from_visits(visits((0, 0, np.inf, 1), (0, 2, 3, 1), (1, 0, 4, 1)), 1, 2)
    assert table.worker.tolist() == [0, 1]
    assert table.visit.tolist() == [0, 0]


def test_no_visits_make_an_empty_table():
    table = from_visits(visits(), 3, 2)
    assert (len(table), table.rounds) == (0, 0)
    table.check()


def test_cut_keeps_the_first_rounds():
    table = three_workers()
    short = table.cut(1)
    assert short.worker.tolist() == [0, 1]
    assert short.push_s.tolist() == [2, 3]
    short.check()
    assert table.cut(2).rounds == 2
    assert len(table.cut(2)) == 4  # without the row that makes no version
    with pytest.raises(ConfigError, match="2 rounds to 3"):
        table.cut(3)


def test_a_table_survives_conversion_to_arrays():
    table = three_workers()
    arrays, meta = table.to_arrays()
    assert meta == {"workers": 3, "m": 2}
    assert Timetable.from_arrays(arrays, meta) == table
    clockless = replace(table, pull_s=None, push_s=None)
    arrays, meta = clockless.to_arrays()
    assert "push_s" not in arrays
    assert Timetable.from_arrays(arrays, meta) == clockless
    assert clockless.version_s is None
    with pytest.raises(ConfigError, match="lacks visit, m"):
        Timetable.from_arrays({k: v for k, v in arrays.items() if k != "visit"}, {"workers": 3})


def test_what_was_in_vain_is_saved_and_makes_no_other_table():
    table = three_workers().cut(2)
    known = replace(table, wasted=Wasted.of([[1, 0, 0, 2, 0, 5], [0, 3, 4, 0, 1, 0]]))
    arrays, meta = known.to_arrays()
    again = Timetable.from_arrays(arrays, meta)
    assert again.wasted.total == known.wasted.total
    assert again.wasted.refused.tolist() == [1, 0]
    assert again == known == table
    for wrong in (np.array([1, 0], np.int32), np.array([1]), np.array([1, -1])):
        with pytest.raises(ConfigError, match="refused"):
            Timetable.from_arrays(arrays | {"wasted.refused": wrong}, meta)
    del arrays["wasted.lost"]
    with pytest.raises(ConfigError, match=r"wasted\.lost"):
        Timetable.from_arrays(arrays, meta)


def test_digest_tells_tables_apart():
    table = three_workers()
    assert table.digest() == three_workers().digest()
    others = [
        replace(table, workers=4),
        replace(table, pull_s=None, push_s=None),
        replace(table, local_steps=table.local_steps + np.int32(1)),
        table.cut(2),
    ]
    assert len({table.digest(), *(other.digest() for other in others)}) == 5
    assert all(table != other for other in others)
    assert table != "a table"


def test_digest_is_the_recorded_one():
    # Fails if the layout of the digest changes, which would orphan every saved run.
    assert three_workers().digest()[:16] == "725a2702dee00a1e"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"m": 0}, "m >= 1, got 3 and 0"),
        ({"worker": [0, 1, 0, 3, 0]}, "Row 3 .* worker=3; workers are numbered 0..2"),
        ({"visit": [0, 0, 1, 0, 1]}, "Row 4 .* visit=1"),
        ({"base_version": [0, 0, 2, 0, 2]}, "Row 2 .* base_version=2"),
        ({"base_version": [-1, 0, 0, 0, 2]}, "Row 0 .* base_version=-1"),
        ({"base_version": [0, 0, 1, 0, 2]}, "Row 2 .* pull_s=2.0; .* before it appears"),
        ({"local_steps": [1, 4, 0, 5, 3]}, "Row 2 .* local_steps=0"),
        ({"local_steps": [1, 4]}, r"local_steps .* shape \(5,\), got int32 of shape \(2,\)"),
        ({"pull_s": None}, "both pull_s and push_s or neither"),
        ({"pull_s": [0.0, 4.0, 2.0, 2.0, 5.0]}, "Row 1 .* pull_s=4.0; a worker pulls before"),
        ({"pull_s": [0.0, np.nan, 2.0, 2.0, 5.0]}, "Row 1 .* pull_s=nan"),
        ({"push_s": [2.0, 3.0, 4.0, 5.0, np.inf]}, "Row 4 .* push_s=inf"),
        ({"push_s": [2.0, 3.0, 6.0, 5.0, 6.0]}, "Row 3 .* push_s=5.0; rows are in the order"),
    ],
)
def test_impossible_tables_are_refused(change: dict[str, Any], message: str):
    def array(value: Any) -> Any:
        dtype = np.float64 if any(isinstance(x, float) for x in value) else np.int32
        return np.array(value, dtype)

    change = {k: array(v) if isinstance(v, list) else v for k, v in change.items()}
    with pytest.raises(ConfigError, match=message):
        replace(three_workers(), **change).check()


def test_wrong_dtypes_are_refused():
    table = three_workers()
    with pytest.raises(ConfigError, match=r"worker of a timetable must be int32 .* got int64"):
        replace(table, worker=table.worker.astype(np.int64)).check()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((2, 0, 1, 1), "workers 2..2, but the population is 0..1"),
        ((0, 2, 1, 1), "pulls at 2.0 s and pushes at 1.0 s"),
        ((0, np.nan, 1, 1), "pulls at nan"),
        ((0, 0, np.nan, 1), "pushes at nan"),
        ((0, 0, 1, 0), "0 local steps"),
    ],
)
def test_impossible_visits_are_refused(row: tuple[int, float, float, int], message: str):
    with pytest.raises(ConfigError, match=message):
        from_visits(visits(row), 1, 2)


def test_an_m_of_zero_is_refused():
    with pytest.raises(ConfigError, match="m=0"):
        from_visits(visits(), 0, 1)


def event_queue(rows: list[tuple[int, int, int, int]], m: int) -> list[tuple[int, ...]]:
    """The obvious simulation: one event at a time, and a server that counts.

    Pushes come before pulls of the same time. A visit of no length pushes in the same moment as it
    pulls; it sees what was folded before its own push.
    """
    queue: list[tuple[int, int, int, int]] = []
    for index, (worker, pull, push, _) in enumerate(rows):
        heapq.heappush(queue, (push, 0, worker, index))
        heapq.heappush(queue, (pull, 1, worker, index))
    folded, base, seen = [], {}, {}
    for _, kind, worker, index in (heapq.heappop(queue) for _ in range(len(queue))):
        version = len(folded) // m
        if kind == 1:
            base.setdefault(index, version)
        else:
            number = seen[worker] = seen.get(worker, -1) + 1
            folded.append((worker, number, base.setdefault(index, version), rows[index][3]))
    return folded


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[tuple[int, int, int, int]], int]:
    """Visits at whole seconds, so that ties abound; those of one worker do not overlap."""
    rows = []
    for worker in range(draw(st.integers(1, 4))):
        now = 0
        for _ in range(draw(st.integers(0, 6))):
            pull = now + draw(st.integers(0, 3))
            now = pull + draw(st.integers(0, 4))
            rows.append((worker, pull, now, draw(st.integers(1, 9))))
    return rows, draw(st.integers(1, 4))


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_from_visits_agrees_with_an_event_queue(world):
    rows, m = world
    table = from_visits(visits(*rows), m, 4)
    table.check()
    expected = event_queue(rows, m)
    columns = (table.worker, table.visit, table.base_version, table.local_steps)
    found = list(zip(*(column.tolist() for column in columns), strict=True))
    assert found == expected


@settings(max_examples=100, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_between_workers_does_not_matter(world, random):
    rows, m = world
    by_worker = [[row for row in rows if row[0] == worker] for worker in range(4)]
    random.shuffle(by_worker)
    shuffled = [row for own in by_worker for row in own]
    assert from_visits(visits(*shuffled), m, 4) == from_visits(visits(*rows), m, 4)


@settings(max_examples=200, deadline=None)
@given(worlds(), st.lists(st.integers(0, 30), max_size=4))
def test_visits_given_in_stretches_make_the_same_table(world, horizons):
    rows, m = world
    folding, since, parts = VisitFolding(m, 4), 0.0, []
    for horizon_s in (*sorted(horizons), np.inf):
        told = [row for row in rows if since <= row[1] < horizon_s]
        parts.append(folding.fold(visits(*told), horizon_s))
        since = horizon_s
    for part in parts:
        part.check()
    assert Timetable.join(parts) == from_visits(visits(*rows), m, 4)


def test_a_push_at_the_horizon_is_not_folded_before_later_visits_are_known():
    folding = VisitFolding(1, 2)
    assert len(folding.fold(visits((1, 0, 5, 1)), 5.0)) == 0
    table = folding.fold(visits((0, 5, 5, 1)), np.inf)  # the lower number, in no time at all
    assert table.worker.tolist() == [0, 1]
    assert table.base_version.tolist() == [0, 0]


def test_a_block_continues_from_the_rounds_before_it():
    table = three_workers()
    block = table.block(1, 2)
    block.check()
    assert (len(block), block.rounds, block.before) == (2, 1, 1)
    assert block.visit.tolist() == [1, 0]
    assert block.version.tolist() == [1, 1]
    assert block.staleness.tolist() == [1, 1]
    assert block.version_s.tolist() == [5]
    assert Timetable.join([table.block(0, 1), block]) == table.cut(2)
    assert Timetable.from_arrays(*block.to_arrays()) == block
    assert block.digest() != replace(block, before=2).digest()
    with pytest.raises(ConfigError, match=r"Row 0 .* base_version=2"):
        replace(block, base_version=np.array([2, 0], np.int32)).check()
    with pytest.raises(ConfigError, match=r"Row 1 .* visit=-1"):
        replace(block, visit=np.array([1, -1], np.int32)).check()


@given(st.lists(st.integers(0, 5), max_size=40))
def test_running_numbers_count_earlier_rows_of_the_same_worker(workers):
    expected = [workers[:row].count(worker) for row, worker in enumerate(workers)]
    assert running_numbers(np.array(workers, np.int32)).tolist() == expected
