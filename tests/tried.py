"""The table of what was tried against the server, in docs/durability.md.

    python -m tests.tried          # writes the table from the marks of the tests

A test that belongs in it says what was tried, what happened before the server was changed, and
what happens now:

    @pytest.mark.tried("24 slow uploads by one worker", before="no versions for 70 s", now="...")
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "durability.md"
BEGIN, END = "<!-- tried: written by python -m tests.tried -->", "<!-- end of tried -->"
HEAD = "| tried | before | now | test |\n| --- | --- | --- | --- |\n"


class _Marks:
    """Collects the marks of all tests, one row per test function."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for mark in item.iter_markers("tried"):
                path = item.path.relative_to(ROOT).as_posix()
                name = item.name.partition("[")[0]
                told = (*mark.args, mark.kwargs["before"], mark.kwargs["now"])
                self.rows[f"{path} {name}"] = f"| {' | '.join(told)} | `{path}`: `{name}` |\n"


def table() -> str:
    """The rows, sorted by file and test."""
    marks = _Marks()
    code = pytest.main(["-q", "--collect-only", "-p", "no:terminal", str(ROOT / "tests")], [marks])
    assert code == 0, "tests could not be collected"
    return HEAD + "".join(marks.rows[key] for key in sorted(marks.rows))


def written(page: str, rows: str) -> str:
    """The page with this table."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{rows}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), table()))
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} is written.\n")
