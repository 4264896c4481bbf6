import csv
from contextlib import closing

import pytest

from anarchic.server.store import open_store
from tests.report.make import make_run
from tests.server.make import begun
from tests.server.test_history import train


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
    assert "none does not exist" in refused(1, "compare", tmp_path / "none")


def test_an_unknown_format_is_refused(refused, tmp_path):
    make_run(tmp_path / "one")
    assert ".png, .svg, .pdf" in refused(
        2, "compare", tmp_path / "one", "--out", tmp_path / "a.bmp"
    )


def test_at_least_one_run_is_needed(anarchic):
    assert anarchic("compare").exit_code == 2


def test_another_metric_is_compared_and_drawn(anarchic, refused, tmp_path):
    pytest.importorskip("matplotlib")
    make_run(tmp_path / "one")
    make_run(tmp_path / "two", accuracies=(0.1, 0.2, 0.25))
    runs = (tmp_path / "one", tmp_path / "two")
    shown = anarchic("compare", *runs, "--metric", "loss", "--out", tmp_path / "loss.png")
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.output.splitlines()[2:4]]
    assert [row[3] for row in rows] == ["0.2", "0.75"]
    assert (tmp_path / "loss.png").stat().st_size > 1000
    told = refused(2, "compare", *runs, "--metric", "lost")
    assert "There is no metric 'lost'. Did you mean 'loss'? There are accuracy, loss." in told


def test_runs_without_accuracy_say_which_metrics_there_are(anarchic, tmp_path):
    runs = make_run(tmp_path / "one"), make_run(tmp_path / "two", judged=False)
    hint = "Without accuracy: two. There are loss: --metric NAME compares one of them."
    assert anarchic("compare", *runs).output.splitlines()[-1] == hint
    assert "Without" not in anarchic("compare", runs[0]).output
    assert "Without" not in anarchic("compare", *runs, "--metric", "loss").output


def test_a_mean_of_ten_rounds_is_shown_only_where_they_were_all_evaluated(anarchic, tmp_path):
    make_run(tmp_path / "all", accuracies=[n / 20 for n in range(12)])
    make_run(tmp_path / "some", accuracies=[n / 20 for n in range(12)])
    path = tmp_path / "some" / "metrics.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:6], *lines[7:]]))  # without round 5
    shown = anarchic("compare", tmp_path / "all", tmp_path / "some").output.splitlines()
    assert "55.0 % 32.5 %" in " ".join(shown[2].split())
    assert "55.0 % \u2013" in " ".join(shown[3].split())


def test_workers_are_drawn_where_runs_were_evaluated_for_each(anarchic, refused, tmp_path):
    pytest.importorskip("matplotlib")
    small = ("--rounds", 4, "--batch", 8, "--labels-per-worker", 2)
    for name, more in (
        ("one", ("--per-worker",)),
        ("two", ("--per-worker", "--seed", 1)),
        ("no", ()),
    ):
        assert anarchic("simulate", *small, *more, "--out", tmp_path / name).exit_code == 0
    picture = tmp_path / "workers.svg"
    shown = anarchic("compare", tmp_path / "one", tmp_path / "two", tmp_path / "no",
                     "--workers", picture)  # fmt: skip
    assert "Workers drawn in" in shown.output
    text = picture.read_text()
    assert text.startswith("<?xml")
    told = refused(2, "compare", tmp_path / "no", "--workers", picture)
    assert "None of these runs was evaluated for each worker (no): simulate with" in told


def test_a_live_run_is_compared_with_a_simulated_one(anarchic, tmp_path):
    pytest.importorskip("matplotlib")
    make_run(tmp_path / "one", clock=True)
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=2, rule="afa-cs")
        train(store)
    picture, numbers = tmp_path / "compare.png", tmp_path / "compare.csv"
    runs = (tmp_path / "run.db", tmp_path / "one")
    shown = anarchic("compare", *runs, "--out", picture, "--csv", numbers)
    assert shown.exit_code == 0, shown.output
    (row,) = (line.split() for line in shown.output.splitlines() if line.startswith("run.db"))
    assert row[1:3] == ["afa-cs", "3+"]
    assert "30.0" in row  # accuracy of the newest version, in percent
    with open(numbers, newline="") as file:
        rows = list(csv.DictReader(file))
    live = [row for row in rows if row["run"] == "run.db"]
    assert [(row["round"], row["virtual_s"]) for row in live][-1] == ("3", "2")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_file_that_is_no_store_is_refused(refused, tmp_path):
    (tmp_path / "run.txt").write_text("not a store at all, and long enough to be read " * 9)
    assert "not a" in refused(1, "compare", tmp_path / "run.txt")
