"""Every example runs, says something, and fits on a screen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.numpy_worker import train

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    if re.search(r"\b(torch|TorchTask)\b", path.read_text(encoding="utf-8")):
        pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
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


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_uses_public_names_only(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"^(?:from|import) (anarchic[\w.]*)", text, re.M)) <= {
        "anarchic",
        "anarchic.worker",
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60
