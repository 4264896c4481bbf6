from __future__ import annotations

import pytest

from anarchic.errors import ConfigError
from anarchic.study import Claim
from anarchic.study.found import HEAD, findings_text, wrapped
from anarchic.study.results import add_results
from tests.study.make import cell, result, study


@pytest.fixture
def made(tmp_path):
    """An experiment with a claim whose number is 0.5, of two seeds, and one that was not run."""
    a, b = cell("a", p=1), cell("b", p=2)
    claims = [
        Claim(text="it is low", of={"p": 1}, value=lambda f: f.one(p=1).ours, at_most=0.6),
        Claim(text="so is b", of={"p": 2}, value=lambda f: f.one(p=2).ours, at_most=0.6),
    ]
    facts = {"how often": lambda found: f"{len(found.results)} times", "nothing": lambda f: ""}
    one = study(tmp_path / "experiments" / "a-table", a, b, claims=claims, facts=facts)
    add_results(one.results, [result(a, 0, value=0.4), result(a, 1, value=0.6)])
    return one


def text(made, prose):
    return findings_text(prose, [made]).removeprefix(HEAD).strip()


def test_numbers_of_claims_and_facts_stand_in_the_prose(made):
    assert text(made, "It is [[a-table: it is low]].") == "It is 0.5000."
    assert text(made, "It is [[a-table: it\nis low]].") == "It is 0.5000."
    assert text(made, "([[a-table rests on: it is low]])") == "(2 seeds)"
    assert text(made, "[[a-table: how often]]") == "2 times"
    assert text(made, "[[a-table: so is b]], [[a-table: nothing]]") == "not run, not run"


@pytest.mark.parametrize(
    ("prose", "why"),
    [
        ("[[a-table: it is high]]", "0 claims of a-table have the text 'it is high'"),
        ("[[a-table rests on: how often]]", "0 claims"),
        ("[[no-table: it is low]]", "no experiment 'no-table'"),
    ],
)
def test_a_place_without_a_number_is_refused(made, prose, why):
    with pytest.raises(ConfigError, match=why):
        text(made, prose)


def test_paragraphs_are_wrapped_and_headings_and_items_kept():
    long = "word " * 40
    lines = wrapped(f"# A title that stays\n\n{long}\n\n- {long}\n- two\n  lines\n").splitlines()
    assert lines[0] == "# A title that stays"
    assert max(map(len, lines)) <= 110
    assert lines[2].startswith("word word")
    items = [line for line in lines if line.startswith("- ")]
    assert items[1] == "- two lines"
    assert lines[lines.index(items[0]) + 1].startswith("  word")
