"""Train with ``examples/numpy_worker.py`` at a real server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np

from anarchic import Layout, wire
from tests.chaos.servers import ServerProcess

EXAMPLE = Path(__file__).parents[1] / "examples" / "numpy_worker.py"


def train(python: Sequence[str], path: Path, folder: Path) -> None:
    """Write its first model, start a server, run it, and check what it has learnt.

    The worker runs by the command ``python`` with ``path`` on its path, the server by our own.
    """
    shutil.copy(EXAMPLE, folder)
    environment = {**os.environ, "PYTHONPATH": str(path)}

    def run(*words: str) -> str:
        command, more = [*python, *words], {"cwd": folder, "env": environment, "timeout": 120}
        done = subprocess.run(command, capture_output=True, text=True, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    init = folder / "model.safetensors"
    run("-m", "anarchic", "init", "--task", "numpy_worker:task", "--out", str(init))
    options = ("--open-enrolment", "--m", "1")
    with ServerProcess(str(folder / "run.db"), init, folder / "log", *options) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert "weight" in run(EXAMPLE.name, url, "ann")
        layout, snapshot, _ = wire.decode_snapshot(httpx.get(f"{url}/v1/model").content)
    assert snapshot.version == 50
    assert right(layout, snapshot.params) > 0.9


def right(layout: Layout, params: np.ndarray) -> float:
    """The share of fresh samples that the model classifies as the example labels them."""
    model, x = layout.split(params), np.random.default_rng(0).normal(size=(2000, 3))
    labels = x @ [1.0, -2.0, 0.5] + 0.3 > 0
    return float(np.mean((x @ model["weight"] + model["bias"] > 0) == labels))
