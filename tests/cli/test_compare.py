import csv

import pytest

from tests.report.make import make_run


def test_runs_are_compared_drawn_and_written(anarchic, tmp_path):
    pytest.importorskip("matplotlib")
    make_run(tmp_path / "one")
    make_run(tmp_path / "two", rule="fedavg", clock=True, finished=False)
    picture, numbers = tmp_path / "out" / "compare.png", tmp_path / "compare.csv"
    runs = (tmp_path / "one", tmp_path / "two")
    shown = anarchic("compare", *runs, "--out", picture, "--csv", numbers)
    assert shown.exit_code == 0, shown.output
    assert "80.0 %" in shown.output
    assert "2+" in shown.output
    assert "+: not finished." in shown.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    with open(numbers, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["run"] for row in rows] == ["one"] * 3 + ["two"] * 3
    assert (rows[2]["round"], rows[2]["accuracy"]) == ("2", "0.8")


def test_the_table_fits_80_columns(anarchic, tmp_path):
    make_run(tmp_path / "fedasync-7", rule="fedasync", clock=True)
    table = anarchic("compare", tmp_path / "fedasync-7").output.splitlines()
    assert max(map(len, table)) <= 80
    assert "fedasync-7" in table[2]


def test_a_directory_without_a_run_is_refused(refused, tmp_path):
    make_run(tmp_path / "one")
    (tmp_path / "empty").mkdir()
    assert "empty has no settings.json" in refused(
        1, "compare", tmp_path / "one", tmp_path / "empty"
    )
    assert "none has no settings.json" in refused(1, "compare", tmp_path / "none")


def test_an_unknown_format_is_refused(refused, tmp_path):
    make_run(tmp_path / "one")
    assert ".png, .svg, .pdf" in refused(
        2, "compare", tmp_path / "one", "--out", tmp_path / "a.bmp"
    )


def test_at_least_one_run_is_needed(anarchic):
    assert anarchic("compare").exit_code == 2
