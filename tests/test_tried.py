"""The table of what was tried is the one that the marks of the tests give."""

from __future__ import annotations

import pytest

from tests import tried

MARKED = '''
@pytest.mark.slow
@pytest.mark.tried(
    "a body that "
    "never ends",
    before="""stalled""",
    now="refused",
)
@pytest.mark.tried("two at once", before="one lost", now="both kept")
def test_one(): ...

class TestGroup:
    @pytest.mark.tried("no head", before="500", now="400")
    async def test_two(self): ...

def test_three(): ...
'''


def test_the_page_holds_the_table() -> None:
    page = tried.PAGE.read_text()
    assert page.count(tried.BEGIN) == page.count(tried.END) == 1
    assert page == tried.written(page, tried.table()), "run: python -m tests.tried"


def test_each_mark_on_a_function_is_a_row() -> None:
    assert tried.rows(MARKED, "tests/test_x.py") == [
        "| a body that never ends | stalled | refused | `tests/test_x.py`: `test_one` |\n",
        "| two at once | one lost | both kept | `tests/test_x.py`: `test_one` |\n",
        "| no head | 500 | 400 | `tests/test_x.py`: `test_two` |\n",
    ]


def test_the_table_replaces_what_stood_between_the_comments() -> None:
    page = f"above\n{tried.BEGIN}\n| old |\n{tried.END}\nbelow\n"
    assert tried.written(page, "| new |\n") == page.replace("old", "new")


@pytest.mark.parametrize(
    ("mark", "fault"),
    [
        ("pytestmark = pytest.mark.tried('a', before='b', now='c')", "1 marks, 0 on functions"),
        ("@pytest.mark.tried('a', now='c')\ndef test_x(): ...", "write tried"),
        ("@pytest.mark.tried(A, before='b', now='c')\ndef test_x(): ...", "plain string"),
        ("@pytest.mark.tried('a|b', before='b', now='c')\ndef test_x(): ...", "holds a |"),
    ],
)
def test_a_mark_that_makes_no_row_is_refused(mark: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault.replace("|", r"\|")):
        tried.rows(mark, "tests/test_x.py")
