"""BatchNorm that a module keeps still by its own train(), and batches without a variance."""

from __future__ import annotations

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
    Sampler,
    simulate,
)
from anarchic.errors import ConfigError  # noqa: E402
from tests.train.kinds import WORKERS  # noqa: E402
from tests.train.short_runs import made, normed_and_dropped  # noqa: E402


class FrozenBackbone(nn.Module):
    """The usual way to keep a backbone still: only ``train`` says so."""

    def __init__(self):
        super().__init__()
        self.back = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16))
        self.back.requires_grad_(False)
        self.head = nn.Linear(16, 10)

    def train(self, mode=True):
        super().train(mode)
        self.back.eval()
        return self

    def forward(self, x):
        return self.head(self.back(x))


@pytest.mark.parametrize("wrap", [lambda m: m, nn.Sequential])
def test_a_train_of_the_module_s_own_is_heard_in_training_mode(wrap):
    module = wrap(FrozenBackbone())
    assert all(part.training for part in module.modules())
    task = made(lambda: module)
    assert task.layout.buffers == ()
    assert {part.training for part in task.module.modules()} == {True, False}
    assert all(part.training for part in module.modules())


@pytest.mark.parametrize("backend", [Loop(), Batched()], ids=["loop", "batched"])
def test_batches_of_one_sample_are_refused_where_they_have_no_variance(backend):
    table = Sampler(WORKERS, 2, ConstantSteps(1)).timetable(0, 1)
    task = made(normed_and_dropped, buffers="average")
    run = Experiment(task, AfaCd(2), table, LocalWork(batch=1), backend=backend)
    with pytest.raises(ConfigError, match=r"BatchNorm of Sequential .* batches of at least 2"):
        simulate(run)
