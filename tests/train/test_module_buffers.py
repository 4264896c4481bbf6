"""Buffers of modules: averaged, or kept by each worker; local rules do not see them."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from anarchic import (  # noqa: E402
    AfaCd,
    Batched,
    ConstantSteps,
    Experiment,
    LocalWork,
    Loop,
    Momentum,
    Prox,
    Sampler,
    Scaffold,
    Settings,
    Sgd,
    Snapshot,
    build,
)
from anarchic.core.buffers import AverageBuffers  # noqa: E402
from anarchic.sim.engine import Engine  # noqa: E402
from anarchic.train.draws import Draws  # noqa: E402
from anarchic.train.task import Lanes  # noqa: E402
from tests.train.kinds import WORKERS, averaging, cnn, digits  # noqa: E402
from tests.train.short_runs import (  # noqa: E402
    SGD,
    difference,
    experiment,
    made,
    normed_and_dropped,
    task_of,
    walked,
)

RULES = [Sgd(), Prox(0.1), Momentum(0.9), Scaffold(), Scaffold(option=1)]


@pytest.mark.parametrize("policy", ["average", "local"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_local_rules_do_not_see_buffers(policy, rule):
    task = made(normed_and_dropped, dtype="float64", buffers=policy)
    loop, batched = (walked(task, backend, rule, rounds=5) for backend in (Loop(), Batched()))
    assert difference(batched, loop) < 1e-10
    places = task.layout.buffer_places
    assert (batched[places] != task.init()[places]).any()


def lanes_of(task, steps, rule=SGD, kept=None):
    work = [LocalWork(rule, 0.1, 8)]
    snapshot = Snapshot(0, task.init(), {n: np.zeros_like(task.init()) for n in rule.shares})
    numbers = np.array([1]), np.array([0]), np.array([steps])
    return Lanes(4, *numbers, work, [snapshot], np.array([0]), kept or {})


@pytest.mark.parametrize("backend", [Loop(), Batched()], ids=["loop", "batched"])
def test_a_visit_is_what_torch_s_own_loop_does(backend):
    """Parameters and running statistics after three steps of SGD, in training mode."""
    task = made(lambda: cnn(nn.BatchNorm2d), dtype="float64", buffers="average")
    found = backend.compute(task, lanes_of(task, 3)).directions[0]
    torch.manual_seed(0)
    module = cnn(nn.BatchNorm2d).double()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    picks = task.pick(Draws(4, np.array([1]), np.array([0]), 3), 8)["sample"][0]
    for rows in picks:
        x, y = (torch.from_numpy(each[rows]) for each in (digits().x_train, digits().y_train))
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x.double()), y).backward()
        optimizer.step()
    layout = task.layout
    end = task.init() - 0.1 * 3 * found
    end[layout.buffer_places] = found[layout.buffer_places]
    for name, tensor in layout.split(end).items():
        np.testing.assert_allclose(tensor, module.state_dict()[name].numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("backend", [Loop(), Batched()], ids=["loop", "batched"])
def test_what_scaffold_keeps_and_sends_has_zeros_for_buffers(backend):
    task, rule = made(normed_and_dropped, buffers="average"), Scaffold()
    kept = {"own_control": np.zeros((1, task.layout.dim), np.float32)}
    found = backend.compute(task, lanes_of(task, 3, rule, kept))
    places = task.layout.buffer_places
    assert not found.extras["control"][0, places].any()
    assert not found.kept["own_control"][0, places].any()
    assert found.extras["control"].any()


def counted(policy, rounds=4):
    """The workers' visits, and how many batches the model says that it has seen."""
    task = made(normed_and_dropped, buffers=policy)
    table = Sampler(WORKERS, 2, ConstantSteps(3)).timetable(1, rounds)
    engine = Engine(Experiment(task, AfaCd(2), table, LocalWork(batch=4)))
    while engine.version < rounds:
        engine.next_version()
    count = task.layout.slices["2.num_batches_tracked"].start
    return table, engine, engine.state.params[count]


def test_average_buffers_start_from_the_mean_of_the_round_before():
    _, engine, count = counted("average")
    assert count == 12.0  # 3 more per round
    assert isinstance(engine.experiment.rule, AverageBuffers)


def test_local_buffers_are_those_of_the_worker_s_own_visits():
    table, _, count = counted("local")
    visits = table.visit[-2:] + 1  # of the two workers of the last round
    assert count == 3 * visits.mean()
    assert count != 12.0


def test_a_counter_is_a_whole_number_for_the_module():
    seen = {}

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(64, 10)
            self.register_buffer("calls", torch.tensor(0))

        def forward(self, x):
            seen[self.calls.dtype] = True
            self.calls += 1
            return self.linear(x.flatten(1))

    task = made(Counting, buffers="average")
    vector = task.init()
    vector[task.layout.buffer_places] = 2.6  # a mean of counters
    x = torch.from_numpy(digits().x_train[:4])
    y = torch.from_numpy(digits().y_train[:4])
    found = task._engine.objective.gradient(torch.from_numpy(vector), x, y)
    assert found[task.layout.buffer_places] == 4.0
    assert set(seen) == {torch.int64}


def test_constant_buffers_stay_in_the_module():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(64, 10)
            self.register_buffer("mask", torch.ones(64, dtype=torch.bool))

        def forward(self, x):
            return self.linear(x.flatten(1) * self.mask)

    assert made(Masked).layout.names == ("linear.bias", "linear.weight")


def test_statistics_that_do_not_run_need_no_policy():
    layers = [nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10, track_running_stats=False)]
    assert made(lambda: nn.Sequential(*layers)).layout.buffers == ()
    assert task_of("Frozen backbone").layout.buffers == ()


def test_a_run_by_name_says_its_policy():
    settings = Settings(
        model="tests.train.kinds:named", buffers="local", rounds=2, m=2, local_steps=2
    )
    found = build(settings)
    assert found.about["buffers"] == "local"
    assert found.task.keeps_buffers
    assert Settings.from_record({**found.about, "fingerprint": ""}) == settings


def test_fingerprints_tell_policies_apart():
    average, local = (experiment(averaging, buffers=each) for each in ("average", "local"))
    assert average.fingerprint() == experiment(averaging, buffers="average").fingerprint()
    assert average.fingerprint() != local.fingerprint()
