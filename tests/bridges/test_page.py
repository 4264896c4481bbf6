"""The scripts of docs/bridges.md run as they are, each pair against a server of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.bridges.serving import INIT, served

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "bridges.md").read_text(encoding="utf-8")
SECTIONS = {
    head: re.findall(r"```python\n(.*?)```", body, re.S)
    for head, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.S | re.M)
}
NEEDS = {"scikit-learn": "sklearn", "JAX": "jax", "Keras": "keras", "Another library": "numpy"}


def test_every_section_with_scripts_is_run():
    assert {head for head, blocks in SECTIONS.items() if blocks} == set(NEEDS)


@pytest.mark.parametrize("head", NEEDS)
def test_the_scripts_of_a_section_run(head: str, tmp_path: Path):
    if find_spec(NEEDS[head]) is None:
        pytest.skip(f"needs {NEEDS[head]}")
    first, worker = SECTIONS[head]
    run(first, tmp_path)
    assert (tmp_path / INIT).exists()
    with served(tmp_path, "--m", "1") as server:
        told = run(worker.replace(":8780", f":{server.port}"), tmp_path)
    if head == "Another library":
        assert told.strip() == "accepted"
    else:
        assert float(told.split()[-1]) > 0.85  # the first models guess


def run(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "KERAS_BACKEND": "torch"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
