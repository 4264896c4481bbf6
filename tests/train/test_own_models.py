"""The examples of docs/own_models.md run, and do what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

PAGE = Path(__file__).parents[2] / "docs" / "own_models.md"


@pytest.mark.slow
def test_the_examples_of_the_page_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert names["run"].accuracy > 0.5
    assert "('5.bias', '5.weight')" in capsys.readouterr().out
    assert names["task"].layout.buffers == ()
    assert len(blocks) == 4
