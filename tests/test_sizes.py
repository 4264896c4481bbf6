"""No Python file is longer than a reader takes in at once, and no function."""

from __future__ import annotations

import ast
import subprocess
import textwrap
from functools import cache
from pathlib import Path

import pytest

from tests.statements import statements

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "experiments", "benchmarks", "examples")
MOST_OF_A_FILE, MOST_OF_A_FUNCTION = 400, 80  # lines
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def tracked() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone: git does not say which files are tracked")
    command = ["git", "ls-files", "-z", "--", *(f"{folder}/*.py" for folder in FOLDERS)]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in shown.stdout.split("\0") if (ROOT / path).is_file()]


def too_long(path: str, source: str) -> list[str]:
    """What is too long in a file: the file itself, and its functions by name."""
    lines = len(source.splitlines())
    found = [f"{path} has {lines} lines"] if lines > MOST_OF_A_FILE else []
    for node in statements(ast.parse(source)):
        if isinstance(node, FUNCTIONS):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > MOST_OF_A_FUNCTION:
                found.append(f"{path}: {node.name} has {lines} lines")
    return found


def test_no_file_and_no_function_is_too_long() -> None:
    found = {path: too_long(path, (ROOT / path).read_text(encoding="utf-8")) for path in tracked()}
    assert len(found) > 500
    assert [each for lines in found.values() for each in lines] == []


def test_a_long_file_and_a_long_function_are_seen() -> None:
    body = "    pass\n" * MOST_OF_A_FUNCTION
    assert too_long("a.py", f"def one():\n{body}") == ["a.py: one has 81 lines"]
    assert too_long("a.py", f"async def one():\n{body}") == ["a.py: one has 81 lines"]
    inner = textwrap.indent(f"def one():\n{body}", "  ")
    for outer in ("class A:", "if x:\n  y\nelse:", "try:\n  x\nexcept E:", "match x:\n case 1:"):
        assert too_long("a.py", f"{outer}\n{inner}") == ["a.py: one has 81 lines"]
    assert too_long("a.py", "x = 1\n" * 401) == ["a.py has 401 lines"]
    assert too_long("a.py", "x = 1\n" * 400) == []
