"""The training scripts of examples/plain, as two workers each, learn at a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from anarchic import wire
from anarchic.data.digits import load_digits
from anarchic.worker import Worker
from tests.bridges import library
from tests.chaos.servers import ServerProcess
from tests.kinds.outcome import learnt
from tests.waiting import until

torch = library("torch")
pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"
ENVIRONMENT = {
    **os.environ, "PYTHONPATH": str(EXAMPLES.parent / "src"), "OMP_NUM_THREADS": "1"
}  # fmt: skip
SCRIPTS = {  # what makes the model, what it needs, and which buffers
    "loop": ("Net", "torch", "average"),
    "hf_trainer": ("make_model", "transformers", None),
    "lightning_module": ("Classifier", "lightning", None),
}
# The mean of two updates is a step: two displacements, each a full one, would go twice too far.
SERVER = ("--m", "2", "--per-worker", "2", "--public-model")


def run(*words: object, folder: Path, **more: str) -> None:
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(
        command, cwd=folder, env={**ENVIRONMENT, **more}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def imported(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_samples(folder: Path) -> dict[str, np.ndarray]:
    """Half of the digits for each of two workers."""
    data = load_digits()
    test = {"x_test": data.x_test, "y_test": data.y_test}
    for number, name in enumerate(("ann", "bob")):
        (folder / name).mkdir()
        mine = {"x_train": data.x_train[number::2], "y_train": data.y_train[number::2]}
        np.savez(folder / name / "digits.npz", **mine, **test)
    return test


def accuracy(model: torch.nn.Module, test: dict[str, np.ndarray]) -> float:
    model.eval()
    model = getattr(model, "net", model)
    with torch.no_grad():
        outputs = model(torch.from_numpy(test["x_test"]))
    outputs = getattr(outputs, "logits", outputs)
    return float((outputs.argmax(1).numpy() == test["y_test"]).mean())


@pytest.mark.parametrize("name", SCRIPTS)
def test_two_workers_of_a_script_learn(name: str, tmp_path: Path) -> None:
    make, needs, buffers = SCRIPTS[name]
    library(needs)
    plain_script = imported(EXAMPLES / "plain" / f"{name}.py")
    test, init, store = write_samples(tmp_path), tmp_path / "model.safetensors", tmp_path / "run.db"
    source = ["--from", f"{name}:{make}", *(["--buffers", buffers] if buffers else [])]
    plain = {"PYTHONPATH": f"{EXAMPLES / 'plain'}:{ENVIRONMENT['PYTHONPATH']}"}
    run("-m", "anarchic", "init", *source, "--out", init, folder=tmp_path, **plain)
    for worker in ("ann", "bob"):
        token = ["token", "add", worker, "--store", store, "--out", f"{worker}/w.token"]
        run("-m", "anarchic", *token, folder=tmp_path)
    with ServerProcess(str(store), init, tmp_path / "log", *SERVER) as server:
        url = f"http://127.0.0.1:{server.port}"
        script = EXAMPLES / "workers" / f"{name}.py"
        both = [
            subprocess.Popen(
                [sys.executable, str(script), "digits.npz", url, "w.token"],
                cwd=tmp_path / worker, env=ENVIRONMENT, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for worker in ("ann", "bob")
        ]  # fmt: skip
        ended = [each.communicate(timeout=300) for each in both]
        assert all(each.returncode == 0 for each in both), ended
        with Worker(url) as watcher:
            # One update per epoch and worker.
            until(lambda: watcher.pull().version == plain_script.EPOCHS)
            tensors = watcher.layout.split(watcher.pull().params)
    model = getattr(plain_script, make)()
    before = accuracy(model, test)
    assert before < 0.4
    missing = model.load_state_dict(
        {n: torch.tensor(tensor) for n, tensor in tensors.items()}, strict=False
    )
    assert not missing.unexpected_keys
    learnt(before, accuracy(model, test), 0.85)
    assert wire.load_model(init)[0].dim == watcher.layout.dim
