"""The event queue: hand-worked cases, and exact agreement with the array path."""

import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import (
    ConstantSteps,
    ContinuousTime,
    Coupling,
    Dropout,
    Exponential,
    ExponentialTime,
    MeasuredSpeeds,
    Synchronous,
    Timetable,
    UniformSteps,
    Visits,
    Work,
    drawing,
    from_visits,
    make_timetable,
    queue,
    timetable_blocks,
)
from tests.participation.test_processes import PROCESSES, WORKERS

WITHOUT_EFFECT = {
    "no limit": Coupling(max_concurrent=WORKERS),
    "no refusal": Coupling(refuse_staleness=10**9, retries=3),
}
WITH_EFFECT = {
    "limit": Coupling(max_concurrent=30),
    "refusal": Coupling(refuse_staleness=3),
    "retries": Coupling(refuse_staleness=1, retries=2),
    "timer": Coupling(step_every_s=7.0),
    "skip": Coupling(skip_unchanged=True),
    "random": Coupling(server_picks="random", max_concurrent=30),
    "free": Coupling(server_picks="free", max_concurrent=30),
    "cohort": Coupling(server_picks="cohort", max_concurrent=30),
    "all of it": Coupling(
        max_concurrent=50, refuse_staleness=2, retries=1, step_every_s=9.0, skip_unchanged=True
    ),
}


def visits_of(*rows: tuple[int, float, float]) -> Visits:
    """Visits (worker, pull_s, push_s), the n-th with n + 1 local steps."""
    worker, pull_s, push_s = zip(*rows, strict=True)
    steps = np.arange(1, len(rows) + 1, dtype=np.int32)
    return Visits(np.array(worker, np.int32), np.array(pull_s), np.array(push_s), steps)


def rows_of(table: Timetable) -> list[tuple[int, int, float, float]]:
    """(worker, base version, pull_s, push_s) of each row."""
    columns = table.worker, table.base_version, table.pull_s, table.push_s
    return list(zip(*(column.tolist() for column in columns), strict=True))


# Worker 0 works 2 s and idles 1 s, worker 1 works 3 s and never idles, worker 2 works 7 s.
THREE = visits_of((0, 0, 2), (0, 3, 5), (0, 6, 8), (1, 0, 3), (1, 3, 6), (2, 0, 7), (2, 9, 11))


def test_nothing_depends_on_the_server():
    table = from_visits(THREE, 2, 3, coupling=Coupling(max_concurrent=3))
    assert rows_of(table) == [
        (0, 0, 0, 2),
        (1, 0, 0, 3),  # version 1 at 3 s
        (0, 1, 3, 5),  # pulls at 3 s, after that push
        (1, 1, 3, 6),  # version 2 at 6 s
        (2, 0, 0, 7),
        (0, 2, 6, 8),  # version 3; one more update makes none
    ]
    assert table.staleness.tolist() == [0, 0, 0, 0, 2, 0]
    assert table == from_visits(THREE, 2, 3).cut(3)


def test_stale_updates_are_refused_and_the_work_is_dropped():
    table = from_visits(THREE, 2, 3, coupling=Coupling(refuse_staleness=1))
    # At 7 s worker 2 brings an update of version 0 to version 2. It idles 2 s, as recorded.
    assert rows_of(table)[4:] == [(0, 2, 6, 8), (2, 2, 9, 11)]
    assert table.version_s.tolist() == [3, 6, 11]
    assert table.wasted.refused.tolist() == [0, 0, 1]
    assert table.wasted.local_steps.tolist() == [0, 0, 6]
    assert table.wasted.total["retried"] == 0


def test_a_bound_that_is_just_met_refuses_nothing():
    assert from_visits(THREE, 2, 3, coupling=Coupling(refuse_staleness=2)).wasted.total == {
        "refused": 0, "retried": 0, "skipped": 0, "stopped": 0, "lost": 0, "local_steps": 0,
    }  # fmt: skip


def test_a_refused_worker_begins_again_from_the_newest_version():
    table = from_visits(THREE, 2, 3, coupling=Coupling(refuse_staleness=1, retries=1))
    # It does not idle: its next visit of 2 s begins at 7 s, from version 2.
    assert rows_of(table)[4:] == [(0, 2, 6, 8), (2, 2, 7, 9)]
    assert table.wasted.total["retried"] == 1


def test_retries_in_a_row_are_limited():
    """Worker 1 takes 4 s per visit while worker 0 makes a version per second."""
    quick = [(0, float(t), t + 1.0) for t in range(30)]
    slow = [(1, 0.0, 4.0), (1, 5.0, 9.0), (1, 11.0, 15.0), (1, 16.0, 20.0)]
    for retries, pulls in ((0, [0, 5, 11, 16]), (1, [0, 4, 10, 14]), (9, [0, 4, 8, 12])):
        coupling = Coupling(refuse_staleness=2, retries=retries)
        table = from_visits(visits_of(*quick, *slow), 1, 2, coupling=coupling)
        assert table.wasted.total["refused"] == 4
        # A push is refused at the end of each visit of 4 s.
        refused_s = np.flatnonzero(table.wasted.refused).tolist()
        assert refused_s == [pull + 4 for pull in pulls]


def test_at_most_two_work_at_once():
    table = from_visits(THREE, 2, 3, coupling=Coupling(max_concurrent=2))
    assert rows_of(table) == [
        (0, 0, 0, 2),  # worker 2 waits and begins at 2 s
        (1, 0, 0, 3),  # version 1; at 3 s workers 0 and 1 want the place, 0 gets it
        (0, 1, 3, 5),  # worker 1 has waited since 3 s
        (1, 1, 5, 8),  # version 2; worker 0 has waited since 6 s
        (2, 0, 2, 9),
        (0, 2, 8, 10),  # version 3
    ]


def test_a_timer_steps_with_what_has_come_and_not_without():
    visits = visits_of((0, 0, 1), (0, 4, 9), (0, 12, 13), (1, 0, 3.5), (1, 9, 10), (2, 0, 9.5))
    table = from_visits(visits, 3, 3, coupling=Coupling(step_every_s=4.0))
    table.check()
    # 4 s: two updates. 8 s: none, the version stays. 10 s: the third update. 16 s: one.
    assert table.stepped.sizes.tolist() == [2, 3, 1]
    assert table.version_s.tolist() == [4, 10, 16]
    assert rows_of(table)[2:] == [(0, 1, 4, 9), (2, 0, 0, 9.5), (1, 1, 9, 10), (0, 2, 12, 13)]
    assert table.staleness.tolist() == [0, 0, 0, 1, 0, 0]
    assert table.version.tolist() == [0, 0, 1, 1, 1, 2]
    assert Timetable.from_arrays(*table.to_arrays()) == table


def test_an_update_at_the_time_of_the_timer_belongs_to_its_step_and_a_pull_sees_it():
    visits = visits_of((0, 0, 4), (0, 4, 5), (1, 0, 4))
    table = from_visits(visits, 5, 2, coupling=Coupling(step_every_s=4.0))
    assert table.stepped.sizes.tolist() == [2, 1]
    assert table.base_version.tolist() == [0, 0, 1]


def test_workers_skip_what_they_have_worked_on():
    visits = visits_of((0, 0, 1), (0, 2, 3), (0, 4, 5), (0, 6, 8), (1, 0, 3.5), (2, 0, 10))
    table = from_visits(visits, 2, 3, coupling=Coupling(skip_unchanged=True))
    # Worker 0 comes at 2 s and at 3 s for nothing. At 4 s version 1 is there.
    assert rows_of(table) == [(0, 0, 0, 1), (1, 0, 0, 3.5), (0, 1, 4, 6), (2, 0, 0, 10)]
    assert table.wasted.skipped.tolist() == [2, 0]


def test_a_worker_that_never_idles_waits_for_a_new_version():
    visits = visits_of((0, 0, 1), (0, 1, 2), (0, 2, 3), (1, 0, 5), (1, 5, 6))
    table = from_visits(visits, 2, 2, coupling=Coupling(skip_unchanged=True))
    # It skips at 1 s, and begins its third visit when version 1 appears.
    assert rows_of(table) == [(0, 0, 0, 1), (1, 0, 0, 5), (0, 1, 5, 6), (1, 1, 5, 6)]


def steady(*factors: float) -> ContinuousTime:
    """Worker i works for ``factors[i]`` seconds, always."""
    return ContinuousTime(
        Exponential(1.0), Work(ConstantSteps(6), 1 / 6, MeasuredSpeeds(np.array(factors)))
    )


def made(process, m, coupling, workers, rounds=4):
    return make_timetable(process, workers=workers, m=m, rounds=rounds, rng=1, coupling=coupling)


def test_a_worker_with_two_jobs_does_one_after_the_other():
    table = made(steady(2.0), 1, Coupling(server_picks="random", max_concurrent=2), 1)
    # The second job was picked at 0 s too, but begins at 2 s. Each later one waits for 2 s.
    assert rows_of(table) == [(0, 0, 0, 2), (0, 0, 0, 4), (0, 1, 2, 6), (0, 2, 4, 8)]
    assert table.staleness.tolist() == [0, 1, 1, 1]


def test_the_only_free_worker_is_picked():
    table = made(steady(2.0, 3.0), 1, Coupling(server_picks="free", max_concurrent=2), 2)
    assert rows_of(table) == [(0, 0, 0, 2), (1, 0, 0, 3), (0, 1, 2, 4), (0, 3, 4, 6)]


def test_a_cohort_is_stopped_when_the_step_is_made():
    table = made(steady(2.0, 3.0), 1, Coupling(server_picks="cohort", max_concurrent=2), 2)
    assert rows_of(table) == [(0, 0, 0, 2), (0, 1, 2, 4), (0, 2, 4, 6), (0, 3, 6, 8)]
    assert table.wasted.stopped.tolist() == [1, 1, 1, 1]  # counted in the round that ends
    assert table.wasted.local_steps.tolist() == [4, 4, 4, 4]  # two thirds of 6


@pytest.mark.parametrize("rounds", [1, 60])
def test_all_of_a_cohort_but_the_first_m_are_stopped_in_every_round(rounds):
    process = PROCESSES["always working"]
    table = made(process, 4, Coupling(server_picks="cohort", max_concurrent=6), WORKERS, rounds)
    assert table.wasted.stopped.tolist() == [2] * rounds


def test_who_ends_with_the_last_of_a_cohort_is_not_stopped():
    coupling = Coupling(server_picks="cohort", max_concurrent=3)
    table = made(steady(2.0, 2.0, 2.0), 2, coupling, 3, 2)
    assert rows_of(table) == [(0, 0, 0, 2), (1, 0, 0, 2), (2, 0, 0, 2), (0, 1, 2, 4)]
    assert table.wasted.stopped.tolist() == [0, 0]


@pytest.mark.parametrize(("jobs", "mean"), [(5, 137 / 60), (10, 7381 / 2520 - 137 / 60)])
def test_cohorts_last_as_long_as_rounds_with_stragglers(jobs, mean):
    """H5 for five of five, H10 - H5 for the first five of ten; see docs/participation.md."""
    process = ContinuousTime(
        Exponential(1.0), Work(ConstantSteps(1), 1.0, time_distribution=ExponentialTime())
    )
    table = made(process, 5, Coupling(server_picks="cohort", max_concurrent=jobs), 10, 4000)
    round_s = np.diff(table.version_s, prepend=0.0)
    assert abs(round_s.mean() - mean) < 4 * round_s.std() / np.sqrt(4000)
    if jobs == 5:
        waits = Synchronous(10, 5, process.work).timetable(2, 4000)
        other = np.diff(waits.version_s, prepend=0.0)
        assert abs(round_s.std() - other.std()) < 0.1


def test_who_fails_in_a_cohort_is_replaced():
    process = ContinuousTime(Exponential(1.0), Work(ConstantSteps(1), 1.0), Dropout(lost_share=0.3))
    table = made(process, 5, Coupling(server_picks="cohort"), 40, 300)
    assert 0.25 < table.wasted.total["lost"] / (1500 + table.wasted.total["lost"]) < 0.35
    workers = table.worker.reshape(300, 5)
    assert all(len(set(row)) == 5 for row in workers.tolist())
    assert table.staleness.max() == 0


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES.keys())
@pytest.mark.parametrize("coupling", WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT.keys())
def test_the_array_path_gives_the_same_table(process, coupling):
    for seed in range(3):
        asked = {"workers": WORKERS, "m": 10, "rounds": 250, "rng": seed}
        table = make_timetable(process, **asked, coupling=coupling)
        assert table == make_timetable(process, **asked)
        assert table.wasted.total["refused"] == 0


def test_a_coupling_without_settings_takes_the_array_path(monkeypatch):
    monkeypatch.setattr(queue, "Queue", None)
    asked = {"workers": 20, "m": 3, "rounds": 5, "rng": 0}
    process = PROCESSES["exponential"]
    assert make_timetable(process, **asked, coupling=Coupling()) == make_timetable(process, **asked)


@pytest.fixture(params=WITH_EFFECT.values(), ids=WITH_EFFECT.keys())
def coupling(request):
    return request.param


def table_with(coupling, rounds=None, until_s=None, seed=4, name="speed classes"):
    end = {"rounds": rounds, "until_s": until_s}
    return make_timetable(
        PROCESSES[name], workers=WORKERS, m=10, rng=seed, coupling=coupling, **end
    )


def test_tables_are_possible_and_grow(coupling, monkeypatch):
    longest = table_with(coupling, 220)
    longest.check()
    assert longest.rounds == 220
    assert table_with(coupling, 220) == longest
    assert not table_with(coupling, 400, seed=5).begins_with(longest.cut(9))
    for rounds in (0, 1, 151):
        table = table_with(coupling, rounds)
        assert longest.begins_with(table)
        rest = longest.base_version[len(table) :]
        assert set(rest[rest <= rounds].tolist()) <= set(table.later.tolist())
        assert table.wasted.total == longest.wasted.block(0, rounds).total
    monkeypatch.setattr(queue, "BLOCK", 64)
    monkeypatch.setattr(drawing, "STRETCH", 97)
    assert table_with(coupling, 60).cut(41) == table_with(coupling, 41)


def test_tables_end_at_a_time(coupling):
    table = table_with(coupling, 100)
    times = table.version_s
    for rounds in (0, 60, 99):
        between = (times[rounds] + (times[rounds - 1] if rounds else 0)) / 2
        assert table_with(coupling, until_s=between) == table.cut(rounds)


def test_blocks_are_the_table(coupling):
    asked = {"workers": WORKERS, "m": 10, "rounds": 250, "rng": 4, "coupling": coupling}
    blocks = list(timetable_blocks(PROCESSES["speed classes"], **asked, size=333))
    assert Timetable.join(blocks) == table_with(coupling, 250)
    assert {block.rounds for block in blocks[:-1]} == {33}
    joined = Timetable.join(blocks)
    assert joined.wasted.total == table_with(coupling, 250).wasted.total


@pytest.mark.parametrize("name", ["diurnal", "trace", "everything", "drop-outs"])
def test_hours_windows_and_failures_are_kept_where_the_server_delays_workers(name):
    coupling = Coupling(max_concurrent=12, refuse_staleness=4, retries=1)
    table = table_with(coupling, until_s=1800.0, name=name)
    table.check()
    assert table.rounds > 20
    working = np.searchsorted(np.sort(table.pull_s), table.pull_s, "right") - np.searchsorted(
        np.sort(table.push_s), table.pull_s, "right"
    )
    assert working.max() <= 12
    windows = PROCESSES[name].availability
    if windows is not None:
        for worker, pull_s, push_s in zip(
            table.worker.tolist(), table.pull_s.tolist(), table.push_s.tolist(), strict=True
        ):
            assert pull_s < push_s <= windows.closes_s(worker, pull_s)


@pytest.mark.parametrize(
    "coupling",
    [
        Coupling(max_concurrent=5),
        Coupling(step_every_s=3.0),
        Coupling(server_picks="random", max_concurrent=5),
        Coupling(server_picks="free", max_concurrent=5),
    ],
)
def test_what_the_server_does_changes_no_draw(coupling):
    """The n-th visit of a worker has the same steps whatever the server does."""
    process = ContinuousTime(Exponential(5.0), Work(UniformSteps(1, 1000), 0.01))
    asked = {"workers": 20, "m": 5, "rounds": 60, "rng": 3}
    alone, table = (make_timetable(process, **asked, coupling=each) for each in (None, coupling))
    steps = [
        dict(zip(zip(t.worker.tolist(), t.visit.tolist()), t.local_steps.tolist()))  # noqa: B905
        for t in (alone, table)
    ]
    common = steps[0].keys() & steps[1].keys()
    assert len(common) > 100
    assert all(steps[0][key] == steps[1][key] for key in common)


def test_misuse():
    for settings, problem in (
        ({"max_concurrent": 0}, "max_concurrent >= 1, got 0"),
        ({"refuse_staleness": -1}, "refuse_staleness >= 0, got -1"),
        ({"retries": 2}, "give refuse_staleness too"),
        ({"step_every_s": 0.0}, "0 < step_every_s < inf, got 0"),
        ({"server_picks": "fifo"}, "server_picks"),
        ({"server_picks": "free", "skip_unchanged": True}, "decides who works next"),
    ):
        with pytest.raises(ConfigError, match=problem):
            Coupling(**settings)
    for coupling, problem in (
        (Coupling(server_picks="free", max_concurrent=21), "there are 20"),
        (Coupling(server_picks="cohort", max_concurrent=2), "never sends m=5"),
    ):
        with pytest.raises(ConfigError, match=problem):
            made(PROCESSES["exponential"], 5, coupling, 20)
    with pytest.raises(ConfigError, match="m=5 never arrive"):
        made(PROCESSES["exponential"], 5, Coupling(skip_unchanged=True), 4)
    with pytest.raises(ConfigError, match="leave out availability"):
        made(PROCESSES["trace"], 5, Coupling(server_picks="free"), WORKERS)


def test_a_server_that_takes_nothing_is_an_error_and_does_not_run_for_ever(monkeypatch):
    monkeypatch.setattr(queue, "IN_VAIN", -450)  # 50 visits without a step are too many
    lossy = ContinuousTime(Exponential(1.0), Work(ConstantSteps(1), 1.0), Dropout(0.99))
    with pytest.raises(ConfigError, match="seems to have ended"):
        made(lossy, 5, Coupling(max_concurrent=3), 20)


@pytest.mark.parametrize(
    ("sizes", "at_s", "problem"),
    [
        ([2, 3, 1], [4.0, 10.0, 9.0], "appears before"),
        ([2, 3, 1], [1.0, 10.0, 16.0], "appears before"),
        ([2, 4], [4.0, 16.0], "1 to m=3 rows"),
        ([2, 0, 3, 1], [4.0, 5.0, 10.0, 16.0], "1 to m=3 rows"),
        ([2, 3], [4.0, 10.0], "together all 6"),
        ([2, 3, 1], [4.0, 10.0], "of each version"),
        ([[2, 3, 1]], [[4.0, 10.0, 16.0]], "of each version"),
    ],
)
def test_a_saved_timer_that_cannot_be_is_refused(sizes, at_s, problem):
    visits = visits_of((0, 0, 1), (0, 4, 9), (0, 12, 13), (1, 0, 3.5), (1, 9, 10), (2, 0, 9.5))
    table = from_visits(visits, 3, 3, coupling=Coupling(step_every_s=4.0))
    arrays, meta = table.to_arrays()
    wrong = {"sizes": np.array(sizes, np.int32), "stepped_s": np.array(at_s)}
    with pytest.raises(ConfigError, match=problem):
        Timetable.from_arrays(arrays | wrong, meta)


def test_the_theory_takes_no_rounds_of_a_timer():
    from anarchic.theory.observed import steps_of

    visits = visits_of((0, 0, 1), (0, 4, 9))
    with pytest.raises(ConfigError, match="a timer makes rounds of fewer"):
        steps_of(from_visits(visits, 3, 1, coupling=Coupling(step_every_s=4.0)))
