from __future__ import annotations

from dataclasses import replace

import pytest

from anarchic.study import Claim, Findings, Outcome, Picture
from anarchic.study.page import page_text, write_pages
from anarchic.study.tables import fixed
from tests.study.make import cell, result, study


@pytest.fixture
def table(tmp_path):
    """Two rows by two settings: three cells run with two seeds, one not at all."""
    cells = [
        cell(f"p{p}-{s}", paper=paper, p=p, setting=s)
        for (p, s), paper in {(1, "x"): 0.5, (1, "y"): 0.6, (2, "x"): 0.7, (2, "y"): 0.8}.items()
    ]
    outcomes = [
        Outcome(c, [result(c, seed, value=c.paper + d) for seed, d in enumerate((0.01, 0.03))])
        for c in cells[:3]
    ]
    return study(tmp_path / "a-table", *cells, across="setting"), Findings(
        [*outcomes, Outcome(cells[3])]
    )


def test_the_page_sets_the_settings_side_by_side(table, tmp_path):
    text = page_text(*table, tmp_path)
    assert "| p | x | y |" in text
    assert "| 1 | 0.5200 ± 0.0141 (0.5000, +0.0200) | 0.6200 ± 0.0141 (0.6000, +0.0200) |" in text
    assert "| 2 | 0.7200 ± 0.0141 (0.7000, +0.0200) | not run |" in text
    assert "3 of 4 cells have results, with 2 seeds" in text
    assert "anarchic reproduce a-table --task t --resume" in text
    assert "| t | A processor | 2 | ieee | anarchic 0.1.0, torch 2.13.0 | 6 | 3 min |" in text


def test_claims_are_held_against_the_results(tmp_path):
    a, b = cell("a", p=1), cell("b", p=2)
    found = Findings([Outcome(a, [result(a, 0, value=0.5)]), Outcome(b)])
    claims = [
        Claim(text="low", of={"p": 1}, value=lambda f: f.one(p=1).ours, at_most=0.6),
        Claim(text="high", of={"p": 1}, value=lambda f: 0.5, at_least=0.7, reason="So it is."),
        Claim(text="between", of={"p": 1}, value=lambda f: 0.5, at_least=0.25, at_most=0.5),
        Claim(text="later", value=lambda f: f.one(p=2).ours + 1, at_most=1),
    ]
    text = page_text(study(tmp_path, a, b, claims=claims), found, tmp_path)
    assert "| low | at most 0.6 | 0.5000 | yes | 1 seed |" in text
    assert "| high | at least 0.7 | 0.5000 | **no** | 1 seed |" in text
    assert "- Not met: high. So it is." in text
    assert "| between | 0.25 to 0.5 | 0.5000 | yes |" in text
    assert "| later | at most 1 |  | not run |" in text


def entry(tmp_path, *results):
    """The one entry of a table with these results."""
    made = study(tmp_path, cell("a", of="x"), across="of")
    found = Findings([Outcome(made.cells[0], results)])
    return page_text(made, found, tmp_path).partition("| x |\n| --- |\n")[2].partition(" |\n")[0]


def test_a_run_that_diverged_is_marked_with_where(tmp_path):
    fine = result(cell("a"), 0, value=0.1)
    new = result(cell("a"), 1, "diverged", value=0.1, rounds=7200, diverged_at=7312)
    old = result(cell("a"), 2, "diverged", value=0.1, rounds=7200)  # has its last evaluation alone
    assert entry(tmp_path, fine) == "| 0.1000"
    assert entry(tmp_path, new) == "| no number, diverged at round 7,312"
    assert entry(tmp_path, old) == "| no number, diverged after round 7,200"
    both = entry(tmp_path, fine, replace(new, numbers={**new.numbers, "value": 0.9}), old)
    assert both == "| 0.1000, diverged in 2 of 3 at round 7,312 and after round 7,200"


def test_a_claim_is_not_met_where_a_run_diverged_unless_it_counts_them(tmp_path):
    """One of two runs diverged; the value 0.5 of the other meets the bound."""
    a = cell("a")
    runs = [result(a, 0, value=0.5), result(a, 1, "diverged", value=0.9)]
    found = Findings([Outcome(a, runs)])

    def words(outcomes, **more):
        claim = Claim(text="c", value=lambda f: f.one().ours or 0.0, at_most=0.6, **more)
        return claim.verdict(outcomes).words

    assert words(found) == "**no**, 1 of 2 runs diverged"
    assert words(found, counts_diverged=True) == "yes, 1 of 2 runs diverged"
    assert words(Findings([Outcome(a, runs[:1])])) == "yes"
    lost = Findings([Outcome(a, runs[1:])])  # no number at all: it is not computed
    assert words(lost) == "**no**, 1 of 1 runs diverged"
    assert Claim(text="c", value=lambda f: 1 / 0, at_most=1).verdict(lost).value is None


def test_what_numbers_rest_on_stands_beside_them(tmp_path):
    a, b = cell("a", setting="x"), cell("b", setting="y")
    one = Outcome(a, [result(a, seed, precision="bf16", value=0.1) for seed in (0, 1)])
    other = Outcome(b, [result(b, 0, value=0.1)])
    assert Findings([one]).basis == "2 seeds, bf16"
    assert Findings([one, other]).basis == "1 or 2 seeds, bf16"
    assert Findings([other]).basis == "1 seed"
    made = study(tmp_path / "t", a, b, seeds={"t": 2})
    text = page_text(made, Findings([one, other]), tmp_path)
    again = "`anarchic reproduce t --task t --seeds 2 --resume`"
    assert f"1 of them have fewer seeds than the others: {again}" in text
    assert "fewer seeds" not in page_text(study(tmp_path / "t", a), Findings([one]), tmp_path)


def test_a_cell_of_two_precisions_is_marked(tmp_path):
    one = result(cell("a"), 0, precision="ieee", value=0.1)
    other = result(cell("a"), 1, precision="bf16", value=0.1)
    assert entry(tmp_path, one, other) == "| 0.1000 ± 0.0000, in bf16 and ieee"


def test_older_results_give_the_threads_of_torch_as_a_lower_bound(tmp_path):
    old = replace(result(cell("a"), 0, value=0.1), hardware={"name": "A processor", "threads": 1})
    text = page_text(study(tmp_path, cell("a")), Findings([Outcome(cell("a"), [old])]), tmp_path)
    assert "| A processor | at least 1 | ieee |" in text


def test_the_command_of_a_page_has_the_precision_of_its_results(tmp_path):
    made = study(tmp_path / "a-table", cell("a"), devices={"t": "cuda"}, precisions={"t": "bf16"})
    text = page_text(made, Findings([Outcome(cell("a"))]), tmp_path)
    assert "anarchic reproduce a-table --task t --device cuda --precision bf16 --seeds 1\n" in text
    assert made.precision("t", "cuda") == "bf16"
    assert made.precision("t", "cpu") == made.precision("u", "cuda") == "ieee"


def test_pictures_are_drawn_and_shown_once_there_is_something(tmp_path):
    pytest.importorskip("matplotlib")
    from anarchic.report.figure import new_figure

    pictures = [
        Picture(file="now.png", caption="Now", draw=lambda f: new_figure(1, 1)),
        Picture(file="later.png", caption="Later", draw=lambda f: None),
    ]
    a = cell("a")
    page = write_pages(study(tmp_path, a, pictures=pictures), Findings([Outcome(a)]), tmp_path)
    assert "![Now](now.png)" in page.read_text()
    assert "later.png" not in page.read_text()
    assert (tmp_path / "now.png").exists()


def test_without_matplotlib_the_page_is_made_without_pictures(tmp_path, monkeypatch, capsys):
    import sys

    from anarchic.report.figure import new_figure

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    picture = Picture(file="now.png", caption="Now", draw=lambda f: new_figure(1, 1))
    a = cell("a")
    page = write_pages(study(tmp_path, a, pictures=[picture]), Findings([Outcome(a)]), tmp_path)
    assert page.exists()
    assert "now.png is not drawn" in capsys.readouterr().err


def test_numbers_are_as_precise_as_they_are_large():
    assert fixed(0.12345, 4) == "0.1235"
    assert fixed(-0.5, 2, signed=True) == "\N{MINUS SIGN}0.50"
    assert fixed(61.25, 4) == "61.25"
    assert fixed(12345.6, 4) == "12,346"
    assert fixed(None, 4) == ""
