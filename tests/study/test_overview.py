from __future__ import annotations

from dataclasses import replace

from anarchic.study import Claim
from anarchic.study.findings import read_findings
from anarchic.study.overview import BEGIN, END, overview_text, readme_text
from anarchic.study.page import page_text
from anarchic.study.results import add_results
from tests.study.make import cell, result, study


def test_the_headline_has_the_mean_difference_and_the_worst_cell(tmp_path):
    near, far = cell("near", paper=0.5), cell("far", paper=0.5)
    made = study(
        tmp_path / "experiments" / "a-table",
        near,
        far,
        cell("later", paper=0.5),
        claims=[Claim(text="far is low", value=lambda f: 0.0, at_most=1.0)],
    )
    results = [result(near, 0, value=0.51), result(far, 0, value=0.47)]
    add_results(made.results, results)
    text = overview_text([made], tmp_path / "docs")
    head = "| [a-table](../experiments/a-table/README.md) | t | 2 of 3 | 1 seed | 0.0200 | "
    assert head + "\N{MINUS SIGN}0.0300 (far) |" in text
    assert "| a-table | far is low | at most 1 |  | not run | 1 seed |" in text
    assert "2 of 3 cells have results." in text
    assert "In all 60 s." in text


def test_cells_that_are_not_known_yet_are_counted(tmp_path):
    near = cell("near", paper=0.5)
    made = replace(study(tmp_path / "experiments" / "a-table", near), planned={near.task: 7})
    add_results(made.results, [result(near, 0, value=0.51)])
    text = overview_text([made], tmp_path / "docs")
    assert "| t | 1 of 7 | 1 seed |" in text
    assert "1 of 7 cells have results." in text
    page = page_text(made, read_findings(made.cells, made.results), made.folder)
    assert "1 of 7 cells have results, with 1 seed; mean absolute difference" in page
    assert f"Those not run: `{made.command(near.task)} --resume`" in page
    assert made.smoke().count(read_findings(made.cells, made.results)) == 1


def test_results_that_are_another_s_are_not_counted_twice(tmp_path):
    a = cell("a", paper=0.5)
    table = study(tmp_path / "experiments" / "a-table", a)
    add_results(table.results, [result(a, 0, value=0.5)])
    figure = study(tmp_path / "a-figure", a, results_of="a-table", title="The figure")
    text = overview_text([figure, table], tmp_path)
    assert "## The figure" in text
    assert "[a-figure](" not in text
    assert "In all 30 s." in text


def test_the_readme_has_a_sentence_of_each_study_that_has_one(tmp_path):
    a = cell("a", paper=0.5)
    said = study(tmp_path / "said", a, in_short=lambda found: f"{found.run.one(p=None).ours:.2f}")
    add_results(said.results, [result(a, 0, value=0.25), result(a, 1, value=0.75)])
    text = readme_text(f"before\n{BEGIN}\nold\n{END}\nafter", [said, study(tmp_path / "b", a)])
    assert text == f"before\n{BEGIN}\n\n- 0.50\n\n{END}\nafter"
