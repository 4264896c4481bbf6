"""Every experiment runs in small, without data files, and leaves its folder as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from anarchic.study import Flags, find
from anarchic.study.reproduce import reproduce

ROOT = Path(__file__).parents[2]


def stamps(folder):
    return {
        path: path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if "__pycache__" not in str(path)
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", find.names())
def test_smoke(name, tmp_path, monkeypatch):
    monkeypatch.setenv("ANARCHIC_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = find.load(name).folder
    before = stamps(folder)
    found = reproduce(find.load(name), Flags(smoke=True, out=tmp_path / "out"))
    assert found.complete
    assert all(line.ours is not None for line in found)
    page = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert page.startswith("<!-- Made by anarchic reproduce")
    assert stamps(folder) == before


WITHOUT = """
import runpy, sys
sys.modules |= dict.fromkeys(("rich", "typer", "click", "httpx", "matplotlib", "pydantic"))
sys.argv[1:] = ["--smoke", "--task", "rnn", "--out", sys.argv[1]]
runpy.run_path("experiments/table-1/run.py", run_name="__main__")
"""


@pytest.mark.slow
def test_an_experiment_needs_only_numpy_torch_and_safetensors(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 4
