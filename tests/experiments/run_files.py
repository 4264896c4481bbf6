"""The names that a file of an experiment defines, and the tables of a page as numbers."""

from __future__ import annotations

import runpy
from types import SimpleNamespace

from anarchic.study import find


def names_of(experiment: str, file: str = "run") -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(find.folder() / experiment / f"{file}.py")))


def rows_of(text: str) -> list[list[str]]:
    """The cells of all Markdown tables in a text, without their headers."""
    lines = text.splitlines()
    tables = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    heads = {n for n, row in enumerate(tables) if set(row) == {"---"}}
    return [row for n, row in enumerate(tables) if n not in heads and n + 1 not in heads]
