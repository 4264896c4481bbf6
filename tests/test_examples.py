"""Every example runs: the files, the Python on pages, and the usage that docstrings show."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from difflib import SequenceMatcher
from importlib import import_module
from pathlib import Path

import httpx
import numpy as np
import pytest

from anarchic import Layout, wire
from anarchic.participation import Timetable
from tests.chaos.servers import ServerProcess

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PLAIN = sorted((ROOT / "examples" / "plain").glob("*.py"))
WORKERS = sorted((ROOT / "examples" / "workers").glob("*.py"))
NUMPY_WORKER = ROOT / "examples" / "numpy_worker.py"
SHOWING = sorted(path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text("utf-8"))
MNIST = os.path.isdir(os.path.join(os.environ.get("ANARCHIC_DATA", ""), "mnist"))
NEEDS = {  # what a page takes as given
    "participation.md": """
from dataclasses import dataclass
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
""",
    "data.md": """
import numpy as np
import torch
from torch import nn
x_train = x_test = x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
y_train = y_test = y = np.arange(40) % 2
site = np.arange(40) % 8
frame = {"age": x[:, 0], "bmi": x[:, 1], "hospital": site, "ill": y}  # taken as a frame is
train_set = test_set = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))
np.save("inputs.npy", x)
module = nn.Linear(2, 2)
""",
}
LIVE = {"workers.md"}  # a server's address: there the names alone are looked for


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if re.search(r"\b(torch|TorchTask)\b", text):
        pytest.importorskip("torch")
    strict = ("-W", "error")
    if "from flwr" in text:
        pytest.importorskip("flwr")
        strict = ()  # it warns of its own dependencies
    done = subprocess.run(
        [sys.executable, *strict, str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.slow
def test_the_numpy_worker_trains_at_a_server(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    train([sys.executable, "-W", "error"], ROOT / "src", tmp_path)


@pytest.mark.parametrize("path", [*EXAMPLES, *WORKERS], ids=lambda path: path.name)
def test_an_example_uses_public_names_only(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"^(?:from|import) (anarchic[\w.]*)", text, re.M)) <= {
        "anarchic",
        "anarchic.bridges.huggingface",
        "anarchic.bridges.lightning",
        "anarchic.worker",
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.name)
def test_a_training_script_becomes_a_worker_by_five_changed_lines(path: Path) -> None:
    before, after = path.read_text(encoding="utf-8"), worker_of(path).read_text(encoding="utf-8")
    assert "anarchic" not in before
    assert "anarchic.Worker(" in after
    blocks = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    changes = [(i, j, k, n) for kind, i, j, k, n in blocks.get_opcodes() if kind != "equal"]
    assert 0 < sum(max(j - i, n - k) for i, j, k, n in changes) <= 5  # with blank lines
    assert len(after.splitlines()) <= 60


def worker_of(path: Path) -> Path:
    """The same script as a worker."""
    return path.parents[1] / "workers" / path.name


def test_every_training_script_has_its_worker() -> None:
    assert len(PLAIN) == 3
    assert {path.name for path in PLAIN} == {path.name for path in WORKERS}


def train(python: Sequence[str], path: Path, folder: Path) -> None:
    """Write the first model of the NumPy worker, start a server, run it, and check what it learnt.

    The worker runs by the command ``python`` with ``path`` on its path, the server by our own.
    """
    shutil.copy(NUMPY_WORKER, folder)
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
        assert "weight" in run(NUMPY_WORKER.name, url, "ann")
        layout, snapshot, _ = wire.decode_snapshot(httpx.get(f"{url}/v1/model").content)
    assert snapshot.version == 50
    assert right(layout, snapshot.params) > 0.9


def right(layout: Layout, params: np.ndarray) -> float:
    """The share of fresh samples that the model classifies as the example labels them."""
    model, x = layout.split(params), np.random.default_rng(0).normal(size=(2000, 3))
    labels = x @ [1.0, -2.0, 0.5] + 0.3 > 0
    return float(np.mean((x @ model["weight"] + model["bias"] > 0) == labels))


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)


ELSEWHERE = {"bridges.md"}  # tests/bridges runs its scripts, with the libraries that they need
PAGES = [
    page
    for page in sorted((ROOT / "docs").glob("*.md"))
    if blocks(page) and page.name not in ELSEWHERE
]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    if page.name == "data.md" and not MNIST:
        pytest.skip("needs MNIST: set ANARCHIC_DATA to a folder that holds it")
    monkeypatch.chdir(tmp_path)
    windows = "".join(f"{worker},{worker},1e9\n" for worker in range(1000))
    Path("trace.csv").write_text(f"worker,from_s,until_s\n{windows}")
    names: dict[str, object] = {}
    for shown in (NEEDS.get(page.name, ""), *blocks(page)):
        if page.name in LIVE:
            # Bridges need their libraries: tests/bridges.
            shown = "\n".join(re.findall(r"^(?:from|import) (?!anarchic\.bridges).*$", shown, re.M))
        exec(compile(shown, page.name, "exec"), names)


def test_the_pages_that_show_python_are_seen():
    assert {"rules.md", "commands.md", "participation.md", "workers.md"} <= {p.name for p in PAGES}


def test_the_page_on_participation_shows_a_server_that_refuses():
    page = next(page for page in PAGES if page.name == "participation.md")
    (shown,) = (each for each in blocks(page) if "table.wasted.total" in each)
    names: dict[str, object] = {}
    exec(compile(f"from anarchic.participation import *\n{shown}", page.name, "exec"), names)
    table = names["table"]
    assert isinstance(table, Timetable)
    assert table.wasted is not None
    assert f"refused ({table.wasted.total['refused']} here)" in shown
    assert table.wasted.total["refused"] > 0


@pytest.mark.parametrize("path", SHOWING, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_examples_of_a_module_give_what_they_show(path: Path) -> None:
    pytest.importorskip("torch")
    module = import_module(".".join(path.relative_to(SOURCE).with_suffix("").parts))
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
