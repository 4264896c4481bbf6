"""Optimisers of torch as local rules: against torch's own loop, and backend against backend."""

from __future__ import annotations

import logging
import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from torch import nn

from anarchic import (
    AfaCd,
    ClipNorm,
    Decay,
    Experiment,
    Layout,
    LocalWork,
    Sampler,
    TorchOptimizer,
    TorchTask,
    UniformSteps,
    VisitStart,
    wire,
)
from anarchic.core.local import begun, take_local_steps
from anarchic.data import iid, load, random_quadratics
from anarchic.errors import ConfigError, RunError
from anarchic.sim.engine import Engine
from anarchic.sim.simulate import simulate
from anarchic.train import torch_optimizer
from anarchic.train.backends import Batched, Loop
from anarchic.train.quadratic import QuadraticTask
from anarchic.train.torch_optimizer import NUMBER_BY_NUMBER
from tests.train.conftest import WORKERS, make_task

MOMENTUM = partial(torch.optim.SGD, momentum=0.9, dampening=0.5)
ADAMW = partial(torch.optim.AdamW, weight_decay=0.1)
MANY = [
    *sorted(NUMBER_BY_NUMBER, key=lambda kind: kind.__name__),
    MOMENTUM,
    partial(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=0.01),
    ADAMW,
    partial(torch.optim.Adam, amsgrad=True, weight_decay=0.1),
    partial(torch.optim.RMSprop, centered=True, momentum=0.5),
]
TENSOR_BY_TENSOR = [torch.optim.Adafactor]


class Halving(torch.optim.Optimizer):
    """Somebody's own: its rate halves with every step, and it counts in its group."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "k": 0})

    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                param.data -= group["lr"] * 0.5 ** group["k"] * param.grad
            group["k"] += 1


class Counting(torch.optim.Optimizer):
    """Somebody's own: its rate falls by a number in its state, which is not a tensor."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        for param in self.param_groups[0]["params"]:
            state = self.state[param]
            state["rate"] = state.get("rate", self.param_groups[0]["lr"]) / 1.1
            state["count"] = state.get("count", 0) + 1
            param.data -= state["rate"] / state["count"] * param.grad


KEPT = [ADAMW, MOMENTUM, torch.optim.NAdam, *TENSOR_BY_TENSOR, Counting]


def named(optimizer):
    return TorchOptimizer(optimizer).described


def walked(task, work, rounds, backend, seed=11):
    """An engine after some rounds of asynchronous, dynamic training."""
    table = Sampler(WORKERS, 2, UniformSteps(1, 4), max_staleness=4).timetable(3, 20)
    engine = Engine(Experiment(task, AfaCd(2), table, work, seed=seed, backend=backend))
    while engine.version < rounds:
        engine.next_version()
    return engine


def difference(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def flat(module):
    names = sorted(name for name, _ in module.named_parameters())
    tensors = dict(module.named_parameters())
    return torch.cat([tensors[name].detach().reshape(-1) for name in names])


@pytest.mark.parametrize("optimizer", [*MANY, *TENSOR_BY_TENSOR], ids=named)
def test_a_visit_ends_where_the_loop_of_torch_ends(optimizer):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, y = torch.randn(5, 8, 3).double(), torch.randint(2, (5, 8))
    start = flat(module)
    layout = Layout.of({n: (tuple(p.shape), "F64") for n, p in module.named_parameters()})
    theirs = optimizer(module.parameters(), lr=0.01)
    gradients = []
    for k in range(5):
        theirs.zero_grad()
        nn.functional.cross_entropy(module(x[k]), y[k]).backward()
        by_name = {name: param.grad for name, param in module.named_parameters()}
        gradients.append(torch.cat([by_name[name].reshape(-1) for name in layout.names]))
        theirs.step()
    rule = begun(TorchOptimizer(optimizer), VisitStart(0.01, 0, layout))
    steps = {"gradient": lambda at, k: gradients[k], "more": lambda done: done < 5}
    found = take_local_steps(rule, start, {}, lr=0.01, **steps)
    np.testing.assert_allclose(start - 5 * 0.01 * found.direction, flat(module), atol=1e-12)
    assert (start != flat(module)).any()


@pytest.mark.parametrize("optimizer", [*MANY, *TENSOR_BY_TENSOR, Halving], ids=named)
def test_batched_equals_loop(optimizer):
    model = "mlp" if optimizer in (ADAMW, *TENSOR_BY_TENSOR) else "logistic"
    task, work = make_task(model), LocalWork(optimizer=optimizer, lr=0.01, batch=3)
    loop, batched = (walked(task, work, 4, each).state.params for each in (Loop(), Batched()))
    assert (loop != task.init()).any()
    assert difference(batched, loop) < 1e-10


@pytest.mark.parametrize("optimizer", KEPT)
def test_batched_equals_loop_where_the_state_is_kept(optimizer):
    task = make_task("logistic")
    work = LocalWork(optimizer=optimizer, keep_state=True, lr=0.01, batch=3)
    loop, batched = (walked(task, work, 8, each).state.params for each in (Loop(), Batched()))
    assert difference(batched, loop) < 1e-10
    forgets = walked(task, replace(work, rule=TorchOptimizer(optimizer)), 8, Batched())
    assert difference(forgets.state.params, batched) > 1e-6  # that it is kept does matter


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("optimizer", KEPT)
def test_two_visits_that_keep_the_state_are_one_long_visit(optimizer, dtype):
    task = make_task("mlp", dtype)
    gradients = np.random.default_rng(0).normal(size=(6, task.layout.dim)).astype(dtype)
    rule = TorchOptimizer(optimizer, keep_state=True)

    def walk(start, kept, first, last):
        visit = begun(rule, VisitStart(0.01, 0, task.layout))
        steps = lambda x, k: gradients[first + k]  # noqa: E731
        more = lambda done: first + done < last  # noqa: E731
        found = take_local_steps(visit, start, dict(kept), lr=0.01, gradient=steps, more=more)
        return start - found.local_steps * 0.01 * found.direction, found.kept

    start, zero = task.init(), dict.fromkeys(rule.keeps, np.zeros(task.layout.dim, dtype))
    whole, last = walk(start, zero, 0, 6)
    end, kept = walk(*walk(start, zero, 0, 2), 2, 6)
    np.testing.assert_allclose(end, whole, rtol=0, atol={"float32": 1e-6, "float64": 1e-14}[dtype])
    assert set(kept) == set(last) == set(rule.keeps)
    assert kept[rule.keeps[0]].dtype == dtype


@pytest.mark.parametrize("keep_state", [False, True])
def test_a_resumed_run_ends_in_the_same_bytes(tmp_path, keep_state):
    task = make_task("logistic", "float32")
    table = Sampler(WORKERS, 2, UniformSteps(1, 4), max_staleness=4).timetable(3, 12)
    work = LocalWork(optimizer=ADAMW, keep_state=keep_state, lr=0.01, batch=3)
    experiment = Experiment(task, AfaCd(2), table, work, seed=2)
    whole = simulate(experiment)

    def cut(progress):
        if progress.round == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(experiment, out=tmp_path, watch=cut)
    arrays, _ = wire.read(tmp_path / "checkpoint.safetensors")
    assert any(".AdamW_" in name for name in arrays) == keep_state
    other = replace(experiment, work=LocalWork(optimizer=torch.optim.AdamW, lr=0.01, batch=3))
    with pytest.raises(RunError):  # another weight decay
        simulate(other, out=tmp_path, resume=True)
    resumed = simulate(experiment, out=tmp_path, resume=True)
    assert resumed.params.tobytes() == whole.params.tobytes()


@pytest.mark.parametrize("keep_state", [False, True])
@pytest.mark.parametrize(
    "optimizer",
    [partial(ADAMW, eps=1e-4), partial(torch.optim.Adafactor, eps=(1e-4, 1e-3))],
)
def test_an_optimiser_does_not_touch_buffers(optimizer, keep_state):
    torch.manual_seed(0)
    # Before BatchNorm some gradients are rounding alone: a small eps would make steps of that.
    first = nn.Linear(64, 5, bias=False)
    module = nn.Sequential(nn.Flatten(), first, nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 10))
    data = load("digits")
    parts = iid(data.y_train, WORKERS, 0)
    task = TorchTask(module, data, parts, dtype="float64", buffers="average")
    assert task.layout.buffers
    given = {"keep_state": keep_state, "batch": 4}
    runs = {}
    for lr in (0.01, 1e-9):  # with and without training
        work = LocalWork(optimizer=optimizer, lr=lr, **given)
        runs[lr] = [walked(task, work, 4, each).state.params for each in (Loop(), Batched())]
        assert difference(*reversed(runs[lr])) < 1e-10
    # How many batches were seen does not depend on the optimiser.
    counts = task.layout.split(runs[0.01][0])["2.num_batches_tracked"]
    assert counts == task.layout.split(runs[1e-9][0])["2.num_batches_tracked"] > 0


def test_workers_may_differ_in_optimiser_and_rate():
    task = make_task("logistic")
    work = [
        LocalWork(optimizer=ADAMW, lr=0.01, batch=3),
        LocalWork(optimizer=ADAMW, lr=0.02, batch=3),
        LocalWork(optimizer=MOMENTUM, lr=0.1, batch=3, keep_state=True),
        LocalWork(lr=0.1, batch=3),
        LocalWork(ClipNorm(0.5, Decay(0.9, 0.95, rule=TorchOptimizer(ADAMW))), lr=0.01, batch=3),
    ]
    loop, batched = (walked(task, work, 20, each).state.params for each in (Loop(), Batched()))
    assert difference(batched, loop) < 1e-10


@pytest.mark.parametrize("rule", [ClipNorm(0.05, TorchOptimizer(torch.optim.SGD)), ClipNorm(0.05)])
def test_gradients_are_clipped_before_the_optimiser_sees_them(rule):
    task, work = make_task("logistic"), LocalWork(rule, lr=0.1, batch=3)
    engine = walked(task, work, 1, Batched())
    assert 0 < np.linalg.norm(engine.state.params - task.init()) < 0.1 * 0.05 * 1.0001


def test_one_line_says_that_visits_are_stepped_one_by_one(caplog):
    torch_optimizer._say_once.cache_clear()
    task = make_task("logistic")
    for optimizer, keep_state in (
        (Halving, False),
        (ADAMW, True),
        (ADAMW, False),
        (Halving, False),
    ):
        work = LocalWork(optimizer=optimizer, keep_state=keep_state, lr=0.01, batch=3)
        with caplog.at_level(logging.WARNING, "anarchic.train"):
            walked(task, work, 4, Batched())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "Halving() reason='not known to work number by number'" in lines[0]
    assert "AdamW(weight_decay=0.1) reason='each worker has its own state'" in lines[1]


def test_the_description_is_the_same_in_every_process_and_for_every_partial():
    one, other = (
        TorchOptimizer(partial(torch.optim.AdamW, weight_decay=0.1, betas=(0.8, 0.9)))
        for _ in range(2)
    )
    assert one.described == "torch.optim.AdamW(betas=(0.8, 0.9), weight_decay=0.1)"
    assert one == other == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(other)
    assert one != TorchOptimizer(ADAMW) != TorchOptimizer(ADAMW, keep_state=True)
    work = LocalWork(optimizer=ADAMW, lr=0.01)
    assert repr(work) == (
        "LocalWork(rule=TorchOptimizer(keep_state=False, "
        "described='torch.optim.AdamW(weight_decay=0.1)'), lr=0.01, batch=64)"
    )
    assert replace(work, lr=0.02).rule == work.rule


def test_settings_of_an_optimiser_are_part_of_the_fingerprint():
    task, table = make_task("logistic"), Sampler(WORKERS, 2, UniformSteps(1, 4)).timetable(3, 4)
    prints = {
        Experiment(task, AfaCd(2), table, LocalWork(optimizer=each, lr=0.01)).fingerprint()
        for each in (ADAMW, torch.optim.AdamW, partial(torch.optim.AdamW, weight_decay=0.1))
    }
    assert len(prints) == 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"optimizer": torch.optim.LBFGS}, "LBFGS.*closure.*use another optimizer"),
        ({"optimizer": torch.optim.SparseAdam}, "SparseAdam.*dense gradient"),
        ({"optimizer": partial(torch.optim.Adam, lr=0.1)}, "give lr=0.1 beside the optimizer"),
        ({"optimizer": partial(torch.optim.Adam, weight=1)}, "unexpected keyword argument"),
        ({"optimizer": partial(torch.optim.Adam, [])}, "by name"),
        ({"optimizer": lambda params, lr: torch.optim.SGD(params, lr)}, "function with a name"),
        ({"optimizer": "adam"}, "got 'adam'"),
        ({"optimizer": Halving, "keep_state": True}, "numbers in its groups.*keep_state=False"),
        ({"optimizer": ADAMW, "rule": ClipNorm(1.0)}, "not both"),
        ({"keep_state": True}, "none is given"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_given(given, says):
    with pytest.raises(ConfigError, match=says):
        LocalWork(**given)


def test_a_model_that_the_optimiser_does_not_take_is_refused_before_training():
    task, table = make_task("mlp"), Sampler(WORKERS, 2, UniformSteps(1, 4)).timetable(3, 4)
    work = LocalWork(optimizer=torch.optim.Muon, lr=0.01)
    with pytest.raises(ConfigError, match=r"Muon.*2D"):  # the biases are vectors
        Experiment(task, AfaCd(2), table, work)


def test_a_state_that_does_not_fit_is_refused():
    task = QuadraticTask(random_quadratics(WORKERS, 2))
    work = LocalWork(optimizer=torch.optim.ASGD, keep_state=True)
    with pytest.raises(ConfigError, match=r"ASGD.*6 numbers, and only 4.*keep_state=False"):
        walked(task, work, 1, Loop())


@pytest.mark.parametrize(("server_lr", "low", "high"), [(10.0, 0.85, 1.0), (0.1, 0.0, 0.6)])
def test_an_mlp_learns_with_adamw_if_the_server_steps_as_far_as_the_workers(server_lr, low, high):
    data = load("digits")
    task = TorchTask(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
        data,
        iid(data.y_train, WORKERS, 0),
    )
    table = Sampler(WORKERS, 2, UniformSteps(10, 10), max_staleness=2).timetable(3, 30)
    work = LocalWork(optimizer=ADAMW, lr=0.002, batch=32)
    run = simulate(Experiment(task, AfaCd(2, server_lr=server_lr), table, work))
    assert low < run.accuracy < high
