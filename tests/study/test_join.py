"""Results of several places become one file."""

from __future__ import annotations

from anarchic.study.join import join, main
from anarchic.study.results import add_results, read_results
from tests.study.make import cell, result


def test_files_are_joined_and_the_last_counts(tmp_path):
    into, one, other = (tmp_path / name / "results.jsonl" for name in ("into", "one", "other"))
    asked = cell()
    add_results(into, [result(asked, 0, last10=0.1)])
    add_results(one, [result(asked, 1, last10=0.2), result(asked, 2, last10=0.3)])
    add_results(other, [result(asked, 2, last10=0.4)])
    assert join(into, [one, other]) == 2
    found = [r.numbers["last10"] for r in read_results(into).of(asked)]
    assert found == [0.1, 0.2, 0.4]


def test_nothing_to_join_makes_no_file(tmp_path):
    assert join(tmp_path / "results.jsonl", [tmp_path / "none"]) == 0
    assert not list(tmp_path.iterdir())


def test_the_command_says_what_is_missing(tmp_path, capsys):
    assert main([str(tmp_path / "into")]) == 2
    assert main([str(tmp_path / "into"), str(tmp_path / "none")]) == 1
    assert "there is no" in capsys.readouterr().err
