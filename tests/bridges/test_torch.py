"""Any PyTorch training as a visit: what is pulled, counted and pushed."""

from __future__ import annotations

import re
import threading
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

import anarchic
from anarchic.bridges.torch import shrinks
from anarchic.core.types import Terms
from anarchic.errors import ConfigError, Diverged
from tests.bridges.small_net import net, train, train_and_fail, values
from tests.bridges.still import StillWorker

visit = anarchic.torch.visit
compiled = partial(torch.compile, backend="eager")


def test_the_whole_displacement_is_pushed_and_steps_are_counted():
    model = net()
    worker, start = StillWorker.of(model), values(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # overwritten by the pull
    with visit(worker, model, samples=7) as ours:
        assert all(np.array_equal(values(model)[name], start[name]) for name in start)
        train(model, steps=5)
        train(net(), steps=9)  # of another model: not counted
        ours.loss = torch.tensor(0.25, requires_grad=True)  # as people have it at hand
    assert (ours.steps, ours.lr, ours.version) == (5, pytest.approx(0.1), 3)
    assert ours.answer.status == "accepted"
    for name, end in values(model).items():
        assert np.array_equal(worker.last[name], start[name] - end)
    facts = {name: fact for name, fact in worker.pushed[0].items() if name != "direction"}
    assert facts == {
        "base_version": 3, "local_steps": 1, "local_lr": 1.0, "samples": 7, "loss": 0.25
    }  # fmt: skip


def test_schedulers_accumulation_and_skipped_steps_are_counted_as_they_are():
    model = net()
    worker, optimizer = StillWorker.of(model), torch.optim.SGD(model.parameters(), lr=0.4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    with visit(worker, model) as ours:
        for batch in range(8):
            factor = float("inf") if batch in (2, 3) else 1.0  # the second step overflows
            scaler.scale(factor * model(torch.ones(1, 3)).sum()).backward()
            if batch % 2:  # two batches to a step
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                schedule.step()
    assert ours.steps == 3
    assert ours.lr == pytest.approx((0.4 + 0.1 + 0.05) / 3)  # 0.2 was skipped


def test_per_step_sends_the_papers_mean_direction():
    model = net()
    worker = StillWorker.of(model, rule="afa-cd", server_lr=1.0)
    start = values(model)
    with (
        pytest.warns(
            UserWarning, match=r"afa-cd, server_lr=1\) moves .* only 0.1 .*-lr 10\."
        ) as told,
        visit(worker, model, per_step=True),
    ):
        train(model, 10, torch.optim.SGD(model.parameters(), lr=0.05))
    assert told[0].filename == __file__  # where the block is
    assert (worker.pushed[0]["local_steps"], worker.pushed[0]["local_lr"]) == (10, 0.05)
    for name, end in values(model).items():
        np.testing.assert_allclose(worker.last[name], (start[name] - end) / (10 * 0.05), rtol=1e-6)
    with visit(worker, model, per_step=True) as ours:
        model[0].weight.data += 1  # no optimiser: nothing to count
        ours.steps, ours.lr = 2, 0.5
    assert worker.last["0.weight"].ravel().tolist() == pytest.approx([-1.0] * 12)
    with pytest.raises(ConfigError, match="give lr="), visit(worker, model, per_step=True):
        model[0].weight.data += 1


@pytest.mark.parametrize(
    ("terms", "steps", "told"),
    [
        (Terms("afa-cd", 1.0), 1, None),
        (Terms("afa-cs", 15.0), 15, None),
        (Terms("fedbuff", 1.0), 15, None),  # steps by K * eta_L * G
        (Terms("fedbuff", 0.01), 15, "0.01 times .* --server-lr 1."),
        (Terms("afa-cd", 1.0), 15, "0.067 times .*per_step=False"),
        (Terms(), 15, None),  # a server that does not say
    ],
)
def test_a_worker_is_told_if_the_rule_shrinks_its_updates(terms, steps, told):
    found = shrinks(terms, steps)
    assert found is None if told is None else re.search(told, found)


def test_an_exception_or_a_model_that_is_not_finite_pushes_nothing():
    model, before = net(), len(torch_optimizer._global_optimizer_post_hooks)
    worker = StillWorker.of(model)
    with pytest.raises(KeyError), visit(worker, model):
        train_and_fail(model)
    with pytest.raises(Diverged), visit(worker, model):
        model[0].weight.data *= float("nan")
    assert not worker.pushed
    assert len(torch_optimizer._global_optimizer_post_hooks) == before  # no hook is left


def test_a_visit_that_changes_nothing_pushes_nothing_and_says_so(caplog):
    model = net()
    worker = StillWorker.of(model)
    with visit(worker, model) as ours:
        train(net())  # the wrong model
    assert (ours.answer, worker.pushed) == (None, [])
    assert "nothing_changed" in caplog.text


@pytest.mark.parametrize(
    "wrapped",
    [nn.DataParallel, compiled, lambda model: compiled(nn.DataParallel(model))],
    ids=["DataParallel", "compile", "both"],
)
def test_wrappers_do_not_change_the_names(wrapped):
    model = net()
    worker, start = StillWorker.of(model), values(model)
    with visit(worker, wrapped(model)) as ours:
        train(model)
    assert ours.steps == 3
    assert np.array_equal(worker.last["0.bias"], start["0.bias"] - values(model)["0.bias"])
    model[0] = compiled(model[0])  # a part of it
    with visit(worker, model):
        model[0]._orig_mod.bias.data += 1
    assert worker.last["0.bias"] == pytest.approx(-1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_rounding_by_a_narrow_model_is_no_displacement(dtype):
    worker = StillWorker.of(net())
    model = net().to(dtype)
    with visit(worker, model):
        model[0].bias.data[0] += 1
    moved = worker.last["0.bias"]
    assert moved[0] == pytest.approx(-1, abs=0.01)
    assert not moved[1:].any()
    assert not worker.last["0.weight"].any()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(x))


@pytest.mark.parametrize(
    "names", [["embed.weight"], ["head.weight"], ["embed.weight", "head.weight"]]
)
def test_tied_weights_travel_under_either_name_or_both(names):
    model = Tied()
    worker = StillWorker({name: model.embed.weight.detach() for name in names})
    with visit(worker, model):
        model.embed.weight.data += 1
    for name in names:
        np.testing.assert_allclose(worker.last[name], -1, rtol=1e-6)


def test_only_what_is_trained_travels():
    model = net()
    model[0].requires_grad_(False)
    head = StillWorker({"2.weight": model[2].weight.detach(), "2.bias": model[2].bias.detach()})
    frozen = values(model)["0.weight"]
    with visit(head, model):
        train(model)
    assert set(head.last) == {"2.weight", "2.bias"}
    assert np.array_equal(values(model)["0.weight"], frozen)

    model.requires_grad_(True)
    with pytest.raises(ConfigError, match=r"trains 0.weight, .* freeze it, or say with train="):
        visit(head, model).__enter__()
    with visit(head, model, lambda name: name.startswith("2.")):
        train(model)  # the first layer is this worker's own
    assert not np.array_equal(values(model)["0.weight"], frozen)

    whole = StillWorker.of(model)
    with visit(whole, model, lambda name: "bias" in name):
        train(model)
    assert whole.last["2.bias"].any()
    assert not whole.last["2.weight"].any()


def test_another_model_is_refused_by_name():
    worker, model = StillWorker.of(net()), nn.Linear(3, 2)
    with pytest.raises(ConfigError, match=r"0.bias \(none here, \[4\] there\)"):
        visit(worker, model).__enter__()
    with pytest.raises(ConfigError, match="run one batch"):
        visit(worker, nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 2))).__enter__()
    with pytest.raises(ConfigError, match="needs a worker"):
        visit(None, model)
    with pytest.raises(ConfigError, match="buffers='local'"):
        visit(worker, model, buffers="average")


def test_steps_are_counted_while_other_threads_begin_and_end_visits():
    from anarchic.bridges.steps import listen

    stop, heard = threading.Event(), []

    def others():
        while not stop.is_set():
            listen(lambda *_: None).remove()

    threads = [threading.Thread(target=others) for _ in range(2)]
    for thread in threads:
        thread.start()
    weight = nn.Parameter(torch.zeros(1))
    weight.grad = torch.ones(1)
    optimizer, listener = torch.optim.SGD([weight], 0.1), listen(lambda *step: heard.append(step))
    try:
        for _ in range(2_000):
            optimizer.step()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        listener.remove()
    optimizer.step()
    assert len(heard) == 2_000
