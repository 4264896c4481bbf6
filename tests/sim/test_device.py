"""A run whose vectors live on a device: the same engine, with tensors instead of arrays.

The device here is the CPU, made to look like another: nothing may lean on vectors being NumPy's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anarchic import Progress, Settings, simulate
from anarchic.sim.simulate import simulate_many

torch = pytest.importorskip("torch")
from anarchic.train.torch_task import TorchTask  # noqa: E402

BASE = Settings(
    model="mlp", rounds=6, batch=8, workers=6, labels_per_worker=5, m=3, local_steps=3, seed=4
)
RUNS = {
    "late": replace(BASE, max_staleness=3, dynamic_steps=True),
    "scaffold": replace(BASE, local_rule="scaffold", max_staleness=2),
    "silos": replace(BASE, rule="afa-cs", server_opt="adam", server_lr=0.05),
    "clipped": replace(BASE, clip=0.01, staleness_power=0.5, max_staleness=1),
    "adam": replace(
        BASE,
        local_rule="clipnorm+decay+adam",
        local_options={"max_norm": 0.5, "per_version": 0.9, "keep_state": True, "epsilon": 1e-3},
        max_staleness=2,
    ),
    "epochs": replace(BASE, local_steps=5, epochs=1, batch=128, server_lr=2.0),
    "fedasync": replace(BASE, rule="fedasync", m=None, max_staleness=2),
}


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_storage(self: TorchTask, vector: Any) -> Any:
        return torch.tensor(vector)

    monkeypatch.setattr(TorchTask, "to_storage", to_storage)
    monkeypatch.setattr(TorchTask, "get", lambda self, array: array)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_a_device_is_the_run_on_the_host(name: str) -> None:
    there = simulate(RUNS[name])
    assert isinstance(there.params, np.ndarray)
    np.testing.assert_allclose(there.params, expected(name), rtol=2e-5, atol=2e-6)


def expected(name: str) -> Any:
    with pytest.MonkeyPatch.context() as host:
        host.setattr(TorchTask, "to_storage", lambda self, vector: vector)
        host.setattr(TorchTask, "get", lambda self, array: array.numpy())
        return simulate(RUNS[name]).params


def interrupt(name: str, progress: Progress) -> None:
    if progress.round == 5:
        raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.usefixtures("on_device")
def test_runs_on_a_device_are_stopped_and_resumed(tmp_path: Path) -> None:
    whole = simulate_many(RUNS)
    with pytest.raises(KeyboardInterrupt):
        simulate_many(RUNS, out=tmp_path, checkpoint_every=2, watch=interrupt)
    again = simulate_many(RUNS, out=tmp_path, resume=True)
    for name, run in whole.items():
        np.testing.assert_allclose(again[name].params, run.params, rtol=2e-5, atol=2e-6)
