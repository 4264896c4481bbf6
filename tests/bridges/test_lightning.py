"""Lightning's own loop as visits."""

from __future__ import annotations

import pytest

from anarchic.errors import ConfigError
from tests.bridges import library
from tests.bridges.still import StillWorker

lightning = library("lightning")
import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader, TensorDataset

from anarchic.bridges.lightning import VisitCallback


class Regression(lightning.LightningModule):
    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__()
        self.net, self.fails_at = nn.Linear(2, 1), fails_at

    def training_step(self, batch, batch_idx):
        if self.global_step == self.fails_at:
            raise RuntimeError("out of memory, say")
        x, y = batch
        return (self.net(x) - y).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def fit(module: lightning.LightningModule, callback: VisitCallback, **options) -> None:
    data = TensorDataset(torch.ones(16, 2), torch.zeros(16, 1))
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[callback], **options,
    )  # fmt: skip
    trainer.fit(module, DataLoader(data, batch_size=2))


def test_every_epoch_is_a_visit():
    module = Regression()
    worker = StillWorker.of(module)
    fit(module, VisitCallback(worker))
    assert [push["samples"] for push in worker.pushed] == [16, 16]
    assert all(push["loss"] > 0 for push in worker.pushed)
    end = worker.layout.split(worker.snapshot.params)["net.bias"] - worker.last["net.bias"]
    assert end == pytest.approx(module.net.bias.detach().numpy())


@pytest.mark.parametrize(("options", "visits"), [({}, 6), ({"accumulate_grad_batches": 2}, 3)])
def test_every_n_steps_is_a_visit(options, visits):
    module = Regression()
    worker = StillWorker.of(module.net)  # the server's model is a part of the module
    fit(module, VisitCallback(worker, every_n_steps=3, module=lambda m: m.net), **options)
    assert len(worker.pushed) == visits  # 16 steps, or 8


def test_an_exception_pushes_nothing_of_its_visit():
    module, before = Regression(fails_at=12), len(torch_optimizer._global_optimizer_post_hooks)
    worker = StillWorker.of(module)
    with pytest.raises(RuntimeError, match="out of memory"):
        fit(module, VisitCallback(worker))
    assert len(worker.pushed) == 1  # the first epoch has 8 steps
    assert len(torch_optimizer._global_optimizer_post_hooks) == before


def test_a_visit_takes_a_step_at_least():
    with pytest.raises(ConfigError, match="every_n_steps=0"):
        VisitCallback(StillWorker.of(nn.Linear(1, 1)), every_n_steps=0)
