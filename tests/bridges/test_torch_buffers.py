"""Buffers of a PyTorch module in a visit: averaged, kept by the worker, or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from torch import nn

import anarchic
from anarchic.errors import ConfigError
from tests.bridges.small_net import net, train, train_and_fail
from tests.bridges.still import StillWorker
from tests.worker.faulty import Scripted

visit = anarchic.torch.visit


def test_averaged_buffers_are_pulled_and_sent_as_they_are_at_the_end():
    source, model = net(nn.BatchNorm1d(4)), net(nn.BatchNorm1d(4))
    train(source, steps=2)
    worker = StillWorker.of(source, buffers="average")
    with visit(worker, model):
        assert model[1].num_batches_tracked == 2
        assert torch.equal(model[1].running_var, source[1].running_var)
        train(model)
    assert worker.last["1.num_batches_tracked"] == 5
    assert np.array_equal(worker.last["1.running_var"], model[1].running_var.numpy())
    assert np.array_equal(worker.last["1.running_mean"], model[1].running_mean.numpy())
    worker.snapshot.params.flags.writeable = True
    worker.layout.split(worker.snapshot.params)["1.num_batches_tracked"][...] = 2.6  # a mean
    with visit(worker, model):
        assert model[1].num_batches_tracked == 3
        model[0].bias.data += 1


@pytest.mark.parametrize("policy", ["of the run", "of the worker"])
def test_local_buffers_stay_with_the_worker(policy):
    worker = StillWorker.of(
        net(nn.BatchNorm1d(4)), **({"buffers": "local"} if "run" in policy else {})
    )
    own = {} if "run" in policy else {"buffers": "local"}
    model = net(nn.BatchNorm1d(4))
    with visit(worker, model, **own):
        train(model)
    assert not any("running" in name for name in worker.last)
    kept = model[1].running_mean.clone()
    with pytest.raises(KeyError), visit(worker, model, **own):
        train_and_fail(model)
    again = net(nn.BatchNorm1d(4))  # as after a new start
    for module in (model, again):  # nothing stays of the visit that failed
        with visit(worker, module, **own):
            assert torch.equal(module[1].running_mean, kept)
            assert module[1].num_batches_tracked == 3
            module[0].bias.data += 1


class Counting(nn.Linear):
    def __init__(self) -> None:
        super().__init__(3, 2)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("mask", torch.ones(3))  # a constant stays in the module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + len(x)
        return super().forward(x * self.mask)


def test_buffers_without_a_policy_are_refused_with_the_remedy():
    batch_norm = net(nn.BatchNorm1d(4))
    with pytest.raises(ConfigError, match=r"1.running_mean, .* --buffers average, or .*'local'"):
        visit(StillWorker.of(batch_norm), batch_norm).__enter__()
    state = {name: each.float() for name, each in batch_norm.state_dict().items()}
    with pytest.raises(ConfigError, match=r"1.running_mean among its trained tensors"):
        visit(StillWorker(state), batch_norm, buffers="local").__enter__()
    group_norm = net(nn.GroupNorm(2, 4))
    with visit(StillWorker.of(group_norm), group_norm) as ours:
        train(group_norm)
    assert ours.answer is not None
    counting = Counting()
    worker = StillWorker.of(counting)
    told = r"changed the buffer seen, .* nothing was pushed"
    with pytest.raises(ConfigError, match=told), visit(worker, counting):
        train(counting)
    assert not worker.pushed
    with visit(worker, counting, buffers="local"):
        train(counting)
    assert worker.state == {"buffer:seen": counting.seen}  # and not the mask


class Mean(nn.Module):
    """The model of the scripted server, and a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(2))
        self.norm = nn.BatchNorm1d(1)
        self.norm.requires_grad_(False)


def test_local_buffers_wait_in_the_spool(tmp_path: Path):
    server, model = Scripted(), Mean()
    with server.worker(spool=tmp_path / "spool") as worker, visit(worker, model, buffers="local"):
        model.norm(torch.ones(4, 1))
        model.x.data += 1
    again = Mean()
    with server.worker(spool=tmp_path / "spool") as worker, visit(worker, again, buffers="local"):
        assert again.x.tolist() == [1.0, 1.0]
        assert again.norm.num_batches_tracked == 1
        assert again.norm.running_mean == pytest.approx(0.1)
