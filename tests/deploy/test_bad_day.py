"""The bad day of docs/operate.md, lived through again."""

from __future__ import annotations

import re

import pytest

from tests.deploy.bad_day import BEGIN, END, PAGE, run
from tests.status_page import made

NUMBER = re.compile(r"\d+(?:[.,:-]\d+)*(?:e[+-]?\d+)?")
MASKED = (
    (re.compile(r"\s+"), " "),
    (re.compile(r"\b[0-9a-f]{16}\b"), "ID"),
    (re.compile(r"\S+@\S+"), "WHO"),
    (re.compile(r" on \S+, epoch"), " on HOST, epoch"),
    (re.compile(r"\d+ waiting updates? (?:was|were) set aside\."), ""),  # there may be none
    (NUMBER, "#"),
    (re.compile(r"[-─]{3,}"), "---"),
)


def section_of(page: str) -> str:
    return page.partition(BEGIN)[2].partition(END)[0]


def shapes(text: str) -> list[list[str]]:
    """The commands and their outputs without what differs from day to day."""
    return [_shape(block.splitlines()) for block in re.findall(r"```text\n(.*?)```", text, re.S)]


def _shape(lines: list[str]) -> list[str]:
    found, rows, in_table = [], set(), False
    if lines[0].startswith("$ anarchic log"):  # where its lines are broken depends on the numbers
        lines = [lines[0], " ".join(lines[1:])]
    for line in lines:
        if in_table:  # of workers: their order and what is unusual may differ
            rows.add(line.split()[0])
            continue
        in_table = bool(re.fullmatch("-+", line))
        if line.startswith(("refused ", "to wait ")):  # which codes came is chance
            line = line[:7]
        for pattern, mask in MASKED:
            line = pattern.sub(mask, line)
        if line.strip():
            found.append(line.strip())
    return [*found, *sorted(rows)]


@pytest.mark.slow
def test_a_bad_day_ends_well_and_is_the_one_on_the_page():
    section = run()  # which checks that nothing is lost, nothing counts twice, and replay is equal
    page = section_of(PAGE.read_text(encoding="utf-8"))
    assert shapes(page) == shapes(section), "run: python -m tests.deploy.bad_day --write"


@pytest.mark.slow
def test_status_looks_there_as_it_does_now():
    """Found within seconds, without a whole day."""
    facts = shapes(f"```text\n{made()['status']}\n```")[0]
    head = facts.index("---")
    shown = [s for s in shapes(section_of(PAGE.read_text(encoding="utf-8"))) if "status" in s[0]]
    assert len(shown) == 4
    for status in shown:
        there = [line.split()[0] for line in status[1 : status.index("---") - 1]]
        assert [name for name in there if name != "rollback"] == [
            line.split()[0] for line in facts[: head - 1]
        ]
        assert status[status.index("---") - 1] == facts[head - 1]  # the names of the columns
        [counts] = [line for line in status if line.startswith("updates")]
        assert counts in facts


def test_a_page_that_is_stale_has_another_shape():
    shown = "```text\n$ anarchic status $STORE\nupdates 8 accepted, 3 withdrawn\nrun 3\n```\n"
    assert shapes(shown) == shapes(shown.replace("8", "9,812").replace("3", "0.5e+06"))
    assert shapes(shown) != shapes(shown.replace(", 3 withdrawn", ""))
    assert shapes(shown) != shapes(shown * 2)
    table = "```text\nworker seen\n-----------\nann 1 s 3 ! stale\nbob 2 s 9\n```"
    other = "```text\nworker seen\n-------\nbob 5 s\nann 0 s\n```"
    assert shapes(table) == shapes(other)
    assert shapes(table) != shapes(table.replace("bob", "eve"))
