"""Every backend against the loop, for every model and local rule."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
import torch

from anarchic import (
    Adam,
    AfaCd,
    ClipNorm,
    Cosine,
    Decay,
    Dyn,
    Experiment,
    LocalWork,
    Milestones,
    MimeLite,
    Momentum,
    Prox,
    Scaffold,
    Schedule,
    Sgd,
    SharedVectors,
    Snapshot,
    WarmUp,
)
from anarchic.kernels.switches import lane_threads
from anarchic.participation import Sampler, UniformSteps
from anarchic.sim.engine import Engine
from anarchic.train import task as task_module
from anarchic.train.backends import Batched, Loop
from anarchic.train.task import Lanes, held_at_start
from tests.train.conftest import WORKERS, make_task

MODELS = ["quadratic", "logistic", "logistic-crops", "mlp", "cnn", "lstm"]
RULES = [Sgd(), Prox(0.1), Momentum(0.9), Scaffold(), Scaffold(option=1), Dyn(0.5), MimeLite()]
# Adam divides tiny gradients by their size: a small epsilon would show their rounding.
WRAPPED = Decay(per_step=0.8, per_version=0.9, rule=ClipNorm(0.5, Adam(epsilon=1e-3)))


def fading(step, version):
    return 1 / (1 + step + version)


EXACT_RULES = [
    WarmUp(3, 2, Cosine(5, 4, rule=Milestones([2], rule=Schedule(fading)))),
    *(Adam(), Adam(keep_state=True), ClipNorm(0.5, Momentum(0.9)), ClipNorm(0.5, Scaffold())),
    WRAPPED,
]


def walked(task, work, rounds, backend):
    """The parameters after some rounds of asynchronous, dynamic training."""
    table = Sampler(WORKERS, 2, UniformSteps(1, 4), max_staleness=4).timetable(3, rounds)
    rules = {each.rule for each in ([work] if isinstance(work, LocalWork) else work)}
    shares = {name for rule in rules for name in rule.shares}
    rule = SharedVectors(AfaCd(2), tuple(shares), population=WORKERS) if shares else AfaCd(2)
    engine = Engine(Experiment(task, rule, table, work, seed=11, backend=backend))
    while engine.version < rounds:
        engine.next_version()
    return engine.state.params


def difference(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [*RULES, WRAPPED], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("model", MODELS)
def test_batched_equals_loop_in_double_precision_after_20_rounds(model, rule):
    work = LocalWork(rule, lr=0.05, batch=3)
    task = make_task(model)
    loop, batched = walked(task, work, 20, Loop()), walked(task, work, 20, Batched())
    assert loop.dtype == np.float64
    assert (loop != task.init()).any()
    assert difference(batched, loop) < 1e-10


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("model", MODELS[1:])
def test_batched_equals_loop_in_single_precision_after_one_round(model, rule):
    work = LocalWork(rule, lr=0.05, batch=3)
    task = make_task(model, "float32")
    loop, batched = walked(task, work, 1, Loop()), walked(task, work, 1, Batched())
    assert loop.dtype == np.float32
    assert difference(batched, loop) < 1e-4


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("rule", EXACT_RULES, ids=repr)
def test_batched_equals_loop_for_rules_with_a_state_or_a_wrapper(rule, shuffle):
    task, work = make_task("logistic"), LocalWork(rule, lr=0.05, batch=3, shuffle=shuffle)
    loop, batched = walked(task, work, 6, Loop()), walked(task, work, 6, Batched())
    assert (loop != task.init()).any()
    assert difference(batched, loop) < 1e-10


@pytest.mark.parametrize("backend", [Loop(), Batched()], ids=["loop", "batched"])
@pytest.mark.parametrize("rule", [ClipNorm(float("inf")), Decay(1.0)])
def test_wrappers_that_change_nothing_change_no_byte_of_a_run(rule, backend):
    task = make_task("logistic", "float32")
    runs = [walked(task, LocalWork(each, 0.1, 8), 4, backend) for each in (rule, Sgd())]
    assert runs[0].tobytes() == runs[1].tobytes()


def test_a_rate_that_decays_with_the_version_is_that_of_the_pulled_version():
    task = make_task("logistic")
    two = lanes(task, [1, 1], LocalWork(Decay(per_version=0.5)))  # from versions 0 and 1
    decayed = Batched().compute(task, two).directions
    plain = Batched().compute(task, replace(two, work=[LocalWork()] * 2)).directions
    np.testing.assert_array_equal(decayed, plain * [[1.0], [0.5]])


def test_workers_of_one_run_may_differ_in_rule_rate_and_batch():
    work = [
        LocalWork(Sgd(), 0.1, 4),
        LocalWork(Prox(0.5), 0.05, 4),
        LocalWork(Momentum(0.5), 0.02, 8),
        LocalWork(Scaffold(), 0.1, 4),
        LocalWork(Sgd(), 0.2, 2),
    ]
    task = make_task("logistic")
    loop, batched = walked(task, work, 20, Loop()), walked(task, work, 20, Batched())
    assert difference(batched, loop) < 1e-10
    same = walked(task, [work[0]] * WORKERS, 20, Loop())
    assert difference(same, loop) > 1e-3  # the differences do matter


def lanes(task, steps, work):
    params = task.init()
    count = len(steps)
    return Lanes(
        seed=5,
        worker=np.arange(count) % WORKERS,
        visit=np.zeros(count, np.int32),
        local_steps=np.array(steps),
        work=[work] * count,
        snapshots=[Snapshot(0, params), Snapshot(1, params + 0.01)],
        snapshot=np.arange(count) % 2,
        kept={},
    )


def test_lanes_that_are_taken_bring_what_is_kept_of_them():
    """The indices go into storage first: only a tensor indexes a tensor without a wait."""
    task, asked = make_task("mlp"), []

    def to_storage(indices):
        asked.append(indices.tolist())
        return torch.tensor(indices)

    class Kept:
        def __getitem__(self, rows):
            return 10 * rows if isinstance(rows, torch.Tensor) else None

    many = replace(lanes(task, [1, 4, 2, 3], LocalWork()), kept={"control": Kept()})
    some = many.take(np.array([3, 1]), to_storage)
    assert some.kept["control"].tolist() == [30, 10]
    assert some.local_steps.tolist() == [3, 4]
    replace(many, kept={}).take(np.array([0]), to_storage)
    assert asked == [[3, 1]]  # nothing kept, nothing sent


def test_batched_takes_kept_vectors_by_indices_in_storage(monkeypatch):
    task = make_task("mlp")
    asked = []
    monkeypatch.setattr(type(task), "to_storage", lambda self, rows: asked.append(rows) or rows)
    mixed = [LocalWork(batch=2), LocalWork(batch=4)]  # two programs
    kept = {"control": np.zeros((2, task.layout.dim))}
    Batched().compute(task, replace(lanes(task, [1, 1], LocalWork()), work=mixed, kept=kept))
    assert sorted(rows.tolist() for rows in asked) == [[0], [0], [1], [1]]  # to take, to put back


def test_nothing_is_cleared_for_a_rule_without_scratch(monkeypatch):
    task = make_task("mlp")
    two = lanes(task, [1, 1], LocalWork())
    held = held_at_start(task, two, Momentum(0.9))
    assert [(matrix.shape, matrix.any()) for matrix in held.values()] == [((2, task.layout.dim), 0)]
    monkeypatch.setattr(task_module, "zeros", None)
    assert held_at_start(task, two, Sgd()) == {}


@pytest.mark.parametrize("backend", [Loop(), Batched()], ids=["loop", "batched"])
def test_a_lane_does_not_depend_on_its_neighbours(backend):
    task = make_task("mlp")
    many = lanes(task, [1, 4, 2, 3], LocalWork(batch=4))
    together = backend.compute(task, many).directions
    for lane in range(4):
        alone = backend.compute(task, many.take(np.array([lane]))).directions
        np.testing.assert_allclose(together[lane], alone[0], rtol=1e-12, atol=1e-14)


def test_threads_share_the_lanes_and_do_not_show_in_what_they_give():
    task, before = make_task("cnn"), torch.get_num_threads()
    many = lanes(task, [1, 4, 2, 3, 3, 2, 1], LocalWork(batch=4))
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert task.threads == threads
            found.append(Batched().compute(task, many).directions)
            assert torch.get_num_threads() == threads
            assert in_new_thread(torch.get_num_threads) == threads
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(found[1], found[2])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-14)


def test_a_thread_of_the_pool_uses_one_of_torch_s_threads():
    before = torch.get_num_threads()

    def computed(_):
        torch.ones(1 << 20).sum()
        return torch.get_num_threads()

    try:
        torch.set_num_threads(2)
        assert set(lane_threads(3, -1).map(computed, range(9))) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def in_new_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@pytest.mark.parametrize("backend", [Loop(), Batched()], ids=["loop", "batched"])
def test_the_direction_is_the_mean_gradient_of_the_local_steps(backend):
    # f(x) = x^2 / 2 for worker 0: gradients 8, 4, 2 at rate 1/2 from x = 8; their mean is 14/3.
    from anarchic.data import Quadratics
    from anarchic.train.quadratic import QuadraticTask

    task = QuadraticTask(Quadratics(np.ones((1, 1)), np.zeros((1, 1))), start=np.array([8.0]))
    one = replace(lanes(task, [3], LocalWork(lr=0.5)), snapshots=[Snapshot(0, task.init())])
    assert backend.compute(task, one).directions.tolist() == [[14 / 3]]
