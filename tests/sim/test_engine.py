"""The engine against the algorithm written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic import AfaCd, AfaCs, Experiment, FedAsync, LocalWork, Scaffold, Sgd, SharedVectors
from anarchic.data import Quadratics, random_quadratics
from anarchic.errors import Diverged
from anarchic.participation import (
    ConstantSteps,
    ContinuousTime,
    Exponential,
    Sampler,
    UniformSteps,
    Work,
    make_timetable,
)
from anarchic.sim.engine import Engine
from anarchic.train.backends import Loop
from anarchic.train.quadratic import QuadraticTask

WORKERS = 6


def task(noise=0.3):
    return QuadraticTask(random_quadratics(WORKERS, 4, noise=noise, seed=1))


def sampled(m=3, rounds=15, max_staleness=4, seed=2):
    return Sampler(WORKERS, m, UniformSteps(1, 4), max_staleness=max_staleness).timetable(
        seed, rounds
    )


def scaffold(m=3):
    return SharedVectors(AfaCd(m), names=("control",), population=WORKERS)


def run_to_the_end(engine):
    while engine.version < engine.experiment.timetable.rounds:
        engine.next_version()
    return engine.state.params


def test_two_workers_three_rounds_by_hand():
    # f_0 = (x - 1)^2 / 2 and f_1 = (x + 1)^2 / 2; one local step at rate 1/2; AFA-CD with m = 1.
    functions = Quadratics(np.ones((2, 1)), np.array([[1.0], [-1.0]]))
    table = Sampler(2, 1, ConstantSteps(1)).timetable(0, 3)
    columns, numbers = table.to_arrays()
    columns["worker"][:] = [0, 1, 0]
    columns["visit"][:] = [0, 0, 1]
    columns["base_version"][:] = [0, 0, 1]
    table = type(table).from_arrays(columns, numbers)
    engine = Engine(Experiment(QuadraticTask(functions), AfaCd(1), table, LocalWork(lr=0.5)))
    seen = []
    for _ in range(3):
        engine.next_version()
        seen.append(float(engine.state.params[0]))
    # from 0: gradient -1 -> 0.5; from 0 again: +1 -> 0.0; from 0.5: -0.5 -> 0.25
    assert seen == [0.5, 0.0, 0.25]


def by_hand(task, table, seed, lr):
    """AFA-CD as Algorithm 2 prints it (with eta_L in the step), one worker at a time."""
    from anarchic.train.draws import Draws

    versions = [task.init()]
    for t in range(table.rounds):
        mean = np.zeros_like(versions[0])
        for row in range(t * table.m, (t + 1) * table.m):
            worker, steps = int(table.worker[row]), int(table.local_steps[row])
            lane = Draws(seed, table.worker[[row]], table.visit[[row]], steps)
            noise = task.pick(lane, 64)["noise"][0]
            x = versions[table.base_version[row]].copy()
            gradients = []
            for k in range(steps):
                gradients.append(task.functions.gradient(x, worker) + noise[k])
                x = x - lr * gradients[-1]
            mean += lr * np.mean(gradients, axis=0) / table.m
        versions.append(versions[-1] - mean)
    return versions[-1]


def test_a_run_is_the_printed_algorithm():
    problem, table = task(), sampled()
    engine = Engine(Experiment(problem, AfaCd(3), table, LocalWork(lr=0.2), seed=9))
    expected = by_hand(problem, table, 9, 0.2)
    np.testing.assert_allclose(run_to_the_end(engine), expected, rtol=1e-12)


def clocked(m=2, rounds=20):
    process = ContinuousTime(Exponential(1.0), Work(UniformSteps(1, 4), 0.5))
    return make_timetable(process, workers=WORKERS, m=m, rounds=rounds, rng=4)


@pytest.mark.parametrize("rule", [AfaCd(2), AfaCs(2, population=WORKERS), scaffold(2)], ids=str)
def test_lookahead_changes_no_byte(rule):
    work = LocalWork(Scaffold() if isinstance(rule, SharedVectors) else Sgd(), lr=0.2)
    finals = [
        run_to_the_end(
            Engine(Experiment(task(), rule, clocked(), work, lookahead=lookahead, backend=Loop()))
        )
        for lookahead in (1, 7, 1000)
    ]
    assert finals[0].tobytes() == finals[1].tobytes() == finals[2].tobytes()


def test_lookahead_makes_fewer_and_larger_batches():
    table = Sampler(WORKERS, 1, ConstantSteps(1), max_staleness=4).timetable(0, 60)
    counts = []

    class Counting:
        def compute(self, task, lanes):
            counts.append(len(lanes))
            return Loop().compute(task, lanes)

    run_to_the_end(Engine(Experiment(task(), FedAsync(), table, LocalWork(), backend=Counting())))
    assert sum(counts) == 60
    assert len(counts) < 45  # without looking ahead there would be 60 batches of one


def snapshots(engine):
    """The versions that updates still start from."""
    return {name.split(".")[1] for name in engine.pack()[0] if name.startswith("snapshot.")}


@pytest.mark.parametrize("open_end", [False, True])
def test_versions_are_dropped_after_their_last_update_is_computed(open_end):
    table = sampled(rounds=60) if open_end else sampled(rounds=70).cut(60)
    engine = Engine(Experiment(task(), AfaCd(3), table, LocalWork()))
    held = []
    while engine.version < 60:
        engine.next_version()
        held.append(snapshots(engine))
    assert max(map(len, held)) <= 5
    # Those that updates after the end may start from are kept, for a run that goes on further.
    assert held[-1] == (set(map(str, range(56, 61))) if open_end else set())
    assert not engine.pack()[1]["waiting"]


def test_a_worker_twice_in_a_round_uses_what_it_kept_the_first_time():
    table = Sampler(2, 4, ConstantSteps(2), replace=True).timetable(0, 10)
    work = LocalWork(Scaffold(), lr=0.1)
    rule = SharedVectors(AfaCd(4), names=("control",), population=2)
    problem = QuadraticTask(random_quadratics(2, 3))
    engine = Engine(Experiment(problem, rule, table, work))
    run_to_the_end(engine)
    # Without noise SCAFFOLD's controls end at the gradients at the optimum, which cancel out.
    controls = [engine.pack()[0][f"kept.{worker}.own_control"] for worker in range(2)]
    assert np.linalg.norm(controls[0]) > 0.1
    np.testing.assert_allclose(
        engine.state.extras["control"], np.mean(controls, axis=0), atol=1e-12
    )
    assert all(control.base is None for control in controls)  # a view would keep a whole batch


@pytest.mark.parametrize(
    ("rule", "local"),
    [(AfaCd(2), Sgd()), (AfaCs(2), Sgd()), (scaffold(2), Scaffold())],
    ids=["afa-cd", "afa-cs", "scaffold"],
)
def test_an_engine_saved_after_any_round_goes_on_to_the_same_bytes(rule, local):
    experiment = Experiment(task(), rule, clocked(rounds=12), LocalWork(local, lr=0.2))
    whole = Engine(experiment)
    packed = []
    while whole.version < 12:
        arrays, numbers = whole.pack()
        packed.append(({name: array.copy() for name, array in arrays.items()}, numbers))
        whole.next_version()
    assert any(numbers["waiting"] for _, numbers in packed)  # look-ahead results were saved too
    for arrays, numbers in packed:
        again = Engine(experiment)
        again.unpack(arrays, numbers)
        assert run_to_the_end(again).tobytes() == whole.state.params.tobytes()
        assert again.local_steps == whole.local_steps


def test_divergence_names_the_version_and_the_worker():
    engine = Engine(Experiment(task(), AfaCd(3), sampled(rounds=600), LocalWork(lr=1e6)))
    with pytest.raises(Diverged, match=r"after version \d+: .*worker '\d'"):
        run_to_the_end(engine)


def test_parameters_that_are_not_finite_name_the_version_and_the_worker():
    rule = AfaCd(3, server_lr=1e200)
    engine = Engine(Experiment(task(), rule, sampled(), LocalWork(lr=0.1)))
    with pytest.raises(Diverged, match=r"Version 1, made by the update of worker '\d', has param"):
        run_to_the_end(engine)
