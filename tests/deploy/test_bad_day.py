"""The bad day of docs/operate.md, lived through again."""

from __future__ import annotations

import re

import pytest

from tests.deploy.bad_day import BEGIN, END, PAGE, run


def typed(text: str) -> list[str]:
    return re.findall(r"^\$ (.+)$", text, re.M)


@pytest.mark.slow
def test_a_bad_day_ends_well_and_is_the_one_on_the_page():
    section = run()  # which checks that nothing is lost, nothing counts twice, and replay is equal
    page = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert typed(page) == typed(section), "run: python -m tests.deploy.bad_day --write"
