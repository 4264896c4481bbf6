"""The commands of docs/sweeps.md run as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "sweeps.md"


def blocks(language):
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.slow
def test_the_commands_of_the_page_run(anarchic, monkeypatch, tmp_path):
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    lines = [shlex.split(line) for block in blocks("bash") for line in block.splitlines()]
    assert len(lines) == 8
    for program, *words in lines:
        shown = anarchic(*words)
        assert (program, shown.exit_code) == ("anarchic", 0), shown.output
    assert {"fig.pdf", "table.tex", "table.csv"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
def test_the_python_of_the_page_runs(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks("python"):
        exec(compile(block, str(PAGE), "exec"), names)
    assert capsys.readouterr().out.count("'rule': ") == 6
    assert (tmp_path / "league" / "stragglers" / "final" / "results.jsonl").exists()
