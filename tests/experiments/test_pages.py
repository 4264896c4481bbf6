"""What is committed beside the raw results is what they give: no number is typed."""

from __future__ import annotations

import json
from functools import cache

import pytest

from anarchic.study import find
from anarchic.study.findings import read_findings
from anarchic.study.found import findings_text
from anarchic.study.overview import BEGIN, END, overview_path, overview_text, readme_text
from anarchic.study.page import page_text
from anarchic.study.results import FILE, read_results

HOW = "Make it again: anarchic reproduce all --report"

load = cache(find.load)


@cache
def findings_of(name):
    return read_findings(load(name).cells, load(name).results)


@pytest.mark.parametrize("name", find.names())
@pytest.mark.slow
def test_the_page_of_an_experiment_is_made_of_its_results(name):
    study = load(name)
    findings = findings_of(name)
    page = study.folder / "README.md"
    assert page.read_text(encoding="utf-8") == page_text(study, findings, study.folder), HOW


@pytest.mark.slow
def test_the_page_of_all_is_made_of_the_results():
    studies = [load(name) for name in find.names()]
    assert overview_path().read_text(encoding="utf-8") == overview_text(
        studies, overview_path().parent
    ), HOW


@pytest.mark.slow
def test_the_page_of_what_was_found_is_made_of_the_results():
    studies = [load(name) for name in find.names()]
    prose = (find.folder() / "notes.md").read_text(encoding="utf-8")
    page = overview_path().with_name("findings.md")
    assert page.read_text(encoding="utf-8") == findings_text(prose, studies), HOW
    assert "not run" not in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_results_of_the_readme_are_made_of_the_raw_results():
    studies = [load(name) for name in find.names()]
    readme = (find.folder().parent / "README.md").read_text(encoding="utf-8")
    assert readme.count(BEGIN) == readme.count(END) == 1
    assert readme == readme_text(readme, studies), HOW
    results = readme.partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    assert len(results) == 3
    assert all(line.startswith("- **") for line in results)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in find.names() if (find.folder() / name / FILE).exists()]
)
def test_every_result_is_one_of_a_cell_and_stands_in_order(name):
    study = load(name)
    known = {r.key for r in findings_of(name).results}
    keys = list(read_results(study.results).by_key)
    assert keys == sorted(keys)
    assert not set(keys) - known
    lines = study.results.read_text(encoding="utf-8").splitlines()
    assert lines == [json.dumps(json.loads(line)) for line in lines]


def test_every_experiment_has_results_of_its_own_or_says_whose():
    for name in find.names():
        study = load(name)
        assert study.results.exists()
        assert (study.results_of is None) == (study.folder / FILE).exists()


@pytest.mark.parametrize("name", find.names())
def test_whole_rows_have_equal_seeds_as_many_as_the_command_gives(name):
    study = load(name)
    for outcome in findings_of(name).run:
        seeds = [result.seed for result in outcome.results]
        assert seeds == list(study.seeds_of(outcome.cell.task))
