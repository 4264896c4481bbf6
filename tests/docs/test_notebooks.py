"""The notebooks run from their first cell to their last, and are kept without outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

pytest.importorskip("ipykernel")
nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.mark.slow
@each
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    told = "".join(output.text for output in outputs if output.get("name") == "stderr")
    assert "Warning" not in told, told  # the log of a worker is there too


@each
def test_a_notebook_is_kept_without_outputs(path: Path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    assert f"{path.name})" in (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")


def test_there_are_three():
    assert len(NOTEBOOKS) == 3
