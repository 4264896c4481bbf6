"""Modules of every kind that people bring: each learns, alike in the loop and in lanes."""

from __future__ import annotations

import logging

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from anarchic import (  # noqa: E402
    AfaCs,
    ConstantSteps,
    Experiment,
    FedAvg,
    LocalWork,
    Loop,
    Momentum,
    Prox,
    Sampler,
    TorchTask,
    simulate,
    simulate_many,
)
from anarchic.data import iid  # noqa: E402
from anarchic.errors import ConfigError  # noqa: E402
from anarchic.sim.record import RunDirectory  # noqa: E402
from anarchic.train import probe  # noqa: E402
from anarchic.train.draws import Draws  # noqa: E402
from tests.train.kinds import KINDS, WORKERS, averaging, digits, dropped  # noqa: E402
from tests.train.short_runs import (  # noqa: E402
    difference,
    experiment,
    made,
    normed_and_dropped,
    task_of,
    walked,
)

SLOW = {n for n in KINDS if n.startswith(("ResNet", "LSTM", "GRU", "Transformer", "Next"))}
every_kind = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in KINDS]
)


@every_kind
def test_it_learns(name, caplog):
    kind = KINDS[name]
    probe._say.cache_clear()
    task = task_of(name)
    table = Sampler(WORKERS, WORKERS, ConstantSteps(10)).timetable(0, kind.rounds)
    work = LocalWork(lr=kind.lr, batch=16)
    run = simulate(Experiment(task, FedAvg(WORKERS), table, work, eval_every=kind.rounds))
    if kind.by_loss:
        assert run.metrics[0]["loss"] > kind.bound + 0.1
        assert run.metrics[-1]["loss"] < kind.bound
    else:
        assert run.metrics[0]["accuracy"] < kind.bound - 0.1
        assert run.accuracy > kind.bound
    said = [each.message for each in caplog.records if "one visit after another" in each.message]
    assert len(said) == kind.alone
    assert all("one visit after another" in line for line in said)


@every_kind
def test_batched_equals_loop_in_double_precision(name):
    task = task_of(name, dtype="float64")
    loop, batched = walked(task, Loop()), walked(task)
    assert (loop != task.init()).any()
    assert difference(batched, loop) < 1e-10


@pytest.mark.parametrize(
    "name", ["Dropout", "CNN with BatchNorm, local", "BatchNorm with momentum=None"]
)
def test_a_seed_repeats_a_run_to_the_last_byte(name):
    first, again = walked(task_of(name)), walked(task_of(name))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != walked(task_of(name), seed=6).tobytes()


def test_dropout_of_a_visit_depends_on_the_seed_and_not_on_torch_s():
    task = task_of("Dropout")
    before = torch.get_rng_state()
    first = walked(task)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert walked(task).tobytes() == first.tobytes()


class Cut(Exception):
    """Somebody pulled the plug."""


@pytest.mark.parametrize("policy", ["average", "local"])
def test_a_run_cut_off_resumes_to_the_same_bytes(tmp_path, policy):
    def cut(progress):
        if progress.round == 6:
            raise Cut

    def again():
        return experiment(normed_and_dropped, server=AfaCs(2), buffers=policy)

    whole = simulate(again(), out=tmp_path / "whole")
    with pytest.raises(Cut):
        simulate(again(), out=tmp_path / "cut", checkpoint_every=2, watch=cut)
    resumed = simulate(again(), out=tmp_path / "cut", resume=True)
    assert resumed.params.tobytes() == whole.params.tobytes()
    for name in ("model.safetensors", "settings.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert RunDirectory(tmp_path / "cut").settings()["buffers"] == policy


def test_runs_that_share_a_batch_are_what_they_would_be_alone():
    runs = {
        "average": experiment(normed_and_dropped, buffers="average"),
        "average, otherwise": experiment(normed_and_dropped, Momentum(0.5), buffers="average"),
        "local": experiment(normed_and_dropped, buffers="local"),
        "local, otherwise": experiment(normed_and_dropped, Prox(0.1), buffers="local"),
        "less dropout": experiment(
            lambda: nn.Sequential(*normed_and_dropped()[:4], nn.Dropout(0.1), nn.Linear(16, 10)),
            buffers="local",
        ),
    }
    together = simulate_many(runs)
    for name, each in runs.items():
        np.testing.assert_allclose(
            together[name].params, simulate(each).params, rtol=1e-4, atol=1e-5
        )
    assert difference(together["average"].params, together["local"].params) > 1e-3


def test_modules_that_only_look_alike_share_no_batch():
    def shaped(activation):
        return made(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10), activation)).batch_key

    assert shaped(nn.ReLU()) == shaped(nn.ReLU())
    assert shaped(nn.ReLU()) != shaped(nn.Tanh())
    assert shaped(nn.LeakyReLU(0.1)) != shaped(nn.LeakyReLU(0.2))
    one, other = (task_of("Frozen backbone") for _ in range(2))
    assert one.batch_key == other.batch_key
    other.module[0][1].weight.data += 1  # it is not trained
    assert one.batch_key != other.batch_key


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", ["Dropout", "CNN with BatchNorm, local", "LSTM", "GRU"])
def test_a_gpu_draws_and_averages_what_the_loop_on_the_cpu_does(name):
    loop = walked(task_of(name, dtype="float64"), Loop())
    on_gpu = walked(task_of(name, dtype="float64", device="cuda")).cpu().numpy()
    assert difference(on_gpu, loop) < 1e-10


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_weights_of_rnns_are_not_moved_on_a_gpu(kind):
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.out = kind(8, 16, batch_first=True), nn.Linear(16, 10)

        def forward(self, x):
            return self.out(self.rows(x.reshape(len(x), 8, 8))[0][:, -1])

    torch.manual_seed(0)
    module, parts = Rows(), iid(digits().y_train, 4, seed=0)
    options = [{"device": device, "dtype": "float64"} for device in ("cpu", "cuda")]
    on_cpu, on_gpu = (TorchTask(module, digits(), parts, **each) for each in options)
    assert difference(walked(on_gpu).cpu().numpy(), walked(on_cpu, Loop())) < 1e-10


# Modes


def test_evaluation_is_in_eval_mode():
    task = task_of("Dropout")
    found = [task.evaluate(task.init()) for _ in range(3)]
    assert found[0] == found[1] == found[2]
    torch.manual_seed(0)
    module = dropped().eval()
    outputs = module(torch.from_numpy(digits().x_test))
    right = (outputs.argmax(-1).numpy() == digits().y_test).mean()
    assert found[0]["accuracy"] == pytest.approx(right)


def test_running_statistics_are_used_in_evaluation_and_left_alone():
    task = task_of("CNN with BatchNorm, average")
    params = walked(task)
    before = params.copy()
    first = task.evaluate(params)
    assert params.tobytes() == before.tobytes()
    params[task.layout.buffer_places] += 1.0
    assert task.evaluate(params) != first


class Functional(nn.Module):
    """It drops whatever the mode is, as many do by mistake."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        return nn.functional.dropout(self.linear(x.flatten(1)), 0.5)


def test_evaluations_of_a_model_that_always_drops_agree():
    task = made(Functional)
    assert len({str(task.evaluate(task.init())) for _ in range(3)}) == 1


def test_parts_in_eval_mode_stay_so_and_a_whole_in_eval_mode_is_trained():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Dropout(0.5))
    task = made(lambda: module.eval())
    assert "noise" in task.pick(Draws(0, np.array([0]), np.array([0]), 1), 2)
    module.train()[2].eval()
    task = made(lambda: module)
    assert "noise" not in task.pick(Draws(0, np.array([0]), np.array([0]), 1), 2)


def test_a_train_of_the_module_s_own_is_heard():
    class Still(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[2].eval()  # and returns nothing, as many do

    module = Still(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10))
    module.eval()
    assert made(lambda: module).layout.buffers == ()


# What travels


def test_a_module_is_copied_when_a_task_is_made():
    module = dropped()
    task = made(lambda: module)
    before = task.init()
    with torch.no_grad():
        module[1].weight += 1
    assert task.init().tobytes() == before.tobytes()
    walked(task, rounds=1)
    assert module.training
    assert module[1].weight.dtype == torch.float32


def test_only_the_selected_parameters_travel_and_change():
    task = task_of("Selected parameters")
    assert task.layout.names == ("4.bias", "4.weight")
    torch.manual_seed(0)
    assert torch.equal(task.module[1].weight, dropped()[1].weight)
    assert not task.module[1].weight.requires_grad


def test_tied_weights_are_selected_by_either_name():
    kind = KINDS["Embedding with tied weights"]
    for name in ("embed.weight", "last.weight"):
        task = made(kind.make, kind.data(), **kind.options, train=[name].__contains__)
        assert task.layout.names == ("embed.weight",)


def test_a_parameter_that_is_not_used_gets_no_step():
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(64, 10), nn.Linear(3, 3)

        def forward(self, x):
            return self.used(x.flatten(1))

    task = made(Spare, dtype="float64")
    loop, batched = walked(task, Loop()), walked(task)
    where = task.layout.slices["spare.weight"]
    assert (loop[where] == task.init()[where]).all()
    assert difference(batched, loop) < 1e-12


def test_a_task_on_other_data_is_of_the_same_model():
    task = task_of("CNN with BatchNorm, local")
    other = task.on_data(digits(), iid(digits().y_train, 2, 0))
    assert other.init().tobytes() == task.init().tobytes()
    assert (other.layout, other.keeps_buffers) == (task.layout, True)


def test_a_line_is_said_once_for_a_model(caplog):
    probe._say.cache_clear()
    with caplog.at_level(logging.WARNING, "anarchic.train"):
        made(averaging, buffers="average")
        made(averaging, buffers="average")
    (line,) = [each.message for each in caplog.records]
    assert line == (
        "Sequential is computed one visit after another, which is slower: the values of a tensor "
        "decide what it does (an if, .item(), a boolean mask)."
    )


class Listed(nn.Module):
    """A layer in a plain list, where torch does not find it."""

    def __init__(self, teacher):
        super().__init__()
        self.layers, self.head = [nn.Linear(64, 16)], nn.Linear(16, 10)
        self.teacher = teacher

    def forward(self, x):
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.teacher):
            hidden = self.layers[0](x.flatten(1))
        return self.head(hidden)


def test_layers_in_a_plain_list_are_refused_unless_they_are_not_trained():
    with pytest.raises(ConfigError, match=r"parameters in 'layers'.*nn.ModuleList"):
        made(lambda: Listed(teacher=False))
    made(lambda: Listed(teacher=True))
    with pytest.raises(ConfigError, match=r"converted to float64 on cpu, without.*nn.ModuleList"):
        made(lambda: Listed(teacher=True), dtype="float64")
    frozen = Listed(teacher=False)
    frozen.layers[0].requires_grad_(False)
    made(lambda: frozen)


class Watching(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.seen = nn.Linear(64, 10), []

    def forward(self, x):
        self.seen = [self.linear(x.flatten(1))]
        return self.seen[0]


def test_what_a_call_left_in_an_attribute_does_not_keep_a_module_from_being_copied():
    module = Watching()
    module(torch.zeros(2, 1, 8, 8))
    task = made(lambda: module)
    walked(task)  # leaves what belongs to a batch of visits
    again = task.on_data(digits(), iid(digits().y_train, WORKERS, 0))
    assert walked(again).tobytes() == walked(task).tobytes()
