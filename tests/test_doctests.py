"""Usage that docstrings show is true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
SHOWING = sorted(path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text("utf-8"))

pytest.importorskip("torch")


@pytest.mark.parametrize("path", SHOWING, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_examples_of_a_module_give_what_they_show(path: Path) -> None:
    module = import_module(".".join(path.relative_to(SOURCE).with_suffix("").parts))
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
