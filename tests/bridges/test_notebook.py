"""In a notebook a run shows a chart, and its progress a bar."""

from __future__ import annotations

import pytest

pytest.importorskip("ipykernel")
nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

PROGRAM = """
import anarchic
run = anarchic.simulate(anarchic.Settings(rounds=30), progress=True)
run
"""


@pytest.mark.slow
def test_a_run_in_a_notebook():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PROGRAM)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    pages = [each.data["text/html"] for each in notebook.cells[0].outputs if "data" in each]
    bar, run = pages
    assert '<progress value="30" max="30"' in bar
    assert "round 30/30 accuracy 0." in bar
    assert run.count("<svg") == 2
