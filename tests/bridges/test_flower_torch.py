"""Flower clients in PyTorch, as Flower's own examples write them, with a BatchNorm layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("torch")

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from torch import nn

from anarchic.bridges.flower import FlowerTask, statistics, tensors_of
from anarchic.bridges.visit import write_first_model
from anarchic.worker import ConstantSteps, WorkPlan
from tests.bridges.serving import INIT, await_version, two_workers

X = torch.tensor(np.random.default_rng(0).normal(3.0, size=(800, 2)), dtype=torch.float32)
Y = ((X - 3).prod(1) > 0).long()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.BatchNorm1d(2), nn.Linear(2, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 2)
    )


def train(model: nn.Module, part: int) -> float:
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for batch in torch.arange(part, len(X), 2).split(50):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X[batch]), Y[batch])
        loss.backward()
        optimizer.step()
    return float(loss.detach())


class Client(NumPyClient):
    def __init__(self, part: int) -> None:
        self.net, self.part = net(), part

    def get_parameters(self, config):
        return [value.cpu().numpy() for value in self.net.state_dict().values()]

    def fit(self, parameters, config):
        named = zip(self.net.state_dict(), parameters, strict=True)
        self.net.load_state_dict({name: torch.tensor(value) for name, value in named}, strict=True)
        loss = train(self.net, self.part)
        return self.get_parameters(config), len(X) // 2, {"train_loss": loss}


messages = ClientApp()


@messages.train()
def train_app(message, context):
    model = net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = train(model, int(context.node_config["partition-id"]))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(X) // 2})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def client_fn(context):
    return Client(int(context.node_config["partition-id"])).to_client()


@pytest.mark.parametrize("kind", ["client", "messages"])
def test_two_clients_with_batchnorm_learn_together(kind: str, tmp_path: Path):
    app = client_fn if kind == "client" else messages
    if kind == "client":
        tensors = FlowerTask(client_fn, {"partition-id": 0}).first_arrays()
    else:
        tensors = tensors_of(ArrayRecord(net().state_dict()))
    assert len(statistics(tensors)) == 6
    layout = write_first_model(tmp_path / INIT, tensors, buffers=statistics(tensors))
    assert len(layout.buffers) == 6
    assert right(net()) < 0.7
    with two_workers(tmp_path) as workers:
        assert workers[0].layout.buffers == layout.buffers
        tasks = [FlowerTask(app, {"partition-id": part}) for part in (0, 1)]
        for version in range(1, 11):
            for worker, task in zip(workers, tasks, strict=True):
                worker.run(task, WorkPlan(steps=ConstantSteps(1), local_lr=1.0, updates=1))
            await_version(workers[0], version)
        found = workers[0].layout.split(workers[0].pull().params)
    model = net()
    trained = (
        dict(zip(model.state_dict(), found.values(), strict=True)) if kind == "client" else found
    )
    model.load_state_dict({name: torch.tensor(value) for name, value in trained.items()})
    assert int(model[0].num_batches_tracked) == 80  # 8 batches in each of 10 visits
    assert torch.allclose(model[0].running_mean, torch.tensor([3.0, 3.0]), atol=0.3)
    assert right(model) > 0.85


def right(model: nn.Module) -> float:
    model.eval()
    with torch.no_grad():
        return float((model(X).argmax(1) == Y).float().mean())
