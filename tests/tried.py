"""The table of what was tried against the server, in docs/durability.md.

    python -m tests.tried          # writes the table from the marks of the tests

A test that belongs in it says what was tried, what happened before the server was changed, and
what happens now, each on one line:

    @pytest.mark.tried("24 slow uploads by one worker", before="no versions for 70 s", now="...")

The marks are read from the files' text, so they must stand on test functions and be plain strings.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "durability.md"
BEGIN, END = "<!-- tried: written by python -m tests.tried -->", "<!-- end of tried -->"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
HEAD = "| tried | before | now | test |\n| --- | --- | --- | --- |\n"


def rows(source: str, path: str) -> list[str]:
    """One row per mark in a file."""
    nodes = list(ast.walk(ast.parse(source)))
    tests = [node for node in nodes if isinstance(node, FUNCTIONS)]
    made = [
        _row(m, f"`{path}`: `{t.name}`") for t in tests for m in t.decorator_list if _is_mark(m)
    ]
    if len(made) != (marks := sum(map(_is_mark, nodes))):
        raise ValueError(
            f"{path}: {marks} marks, {len(made)} on functions; put each on a function."
        )
    return made


def _is_mark(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.tried"


def _row(mark: ast.expr, test: str) -> str:
    assert isinstance(mark, ast.Call)
    cells = {word.arg: word.value for word in mark.keywords}
    if len(mark.args) != 1 or cells.keys() != {"before", "now"}:
        raise ValueError(f"{test}: write tried(what, before=..., now=...).")
    try:
        texts = [ast.literal_eval(cell) for cell in (*mark.args, cells["before"], cells["now"])]
    except ValueError as error:
        raise ValueError(f"{test}: a cell is computed; write it as a plain string.") from error
    if unfit := [text for text in texts if "|" in text or "\n" in text]:
        raise ValueError(f"{test}: a cell holds a | or a line break: {unfit}.")
    return f"| {' | '.join(texts)} | {test} |\n"


def table() -> str:
    """The rows of all tests, by file and then in the order of the tests."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    files = [(path.read_text(), path.relative_to(ROOT).as_posix()) for path in paths]
    return HEAD + "".join(
        row for text, path in files if "tried" in text for row in rows(text, path)
    )


def written(page: str, rows: str) -> str:
    """The page with this table."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{rows}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), table()))
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} is written.\n")
