import json
from contextlib import closing

import pytest

from anarchic.errors import ConfigError, RunError
from anarchic.report.runs import (
    TableRow,
    compare_runs,
    first_at,
    read_run,
    read_runs,
    write_csv,
)
from anarchic.server.store import open_store
from tests.browser.many import fill
from tests.report.make import make_run
from tests.server.make import begun


def test_a_finished_run(tmp_path):
    run = read_run(make_run(tmp_path / "one"))
    assert (run.name, run.settings["rule"], run.has_clock) == ("one", "afa-cd", False)
    assert [row["accuracy"] for row in run.metrics] == [0.1, 0.6, 0.8]
    assert run.summary == {"final_accuracy": 0.8}


def test_a_run_that_is_still_going(tmp_path):
    run = read_run(make_run(tmp_path / "one", clock=True, finished=False))
    assert (run.summary, run.has_clock, len(run.metrics)) == (None, True, 3)


def test_a_run_that_has_only_begun(tmp_path):
    (make_run(tmp_path / "one", finished=False) / "metrics.csv").unlink()
    assert read_run(tmp_path / "one").metrics == []


def test_equal_names_become_paths(tmp_path):
    paths = [make_run(tmp_path / where / "run") for where in "ab"]
    assert [run.name for run in read_runs(paths)] == [str(path) for path in paths]


def test_the_first_time_at_an_accuracy(tmp_path):
    run = read_run(make_run(tmp_path / "one"))
    assert first_at(run.metrics, 0.5)["round"] == 1
    assert first_at(run.metrics, 0.9) is None


def test_what_is_no_run(tmp_path):
    with pytest.raises(RunError, match=r"no settings\.json"):
        read_run(tmp_path)
    (tmp_path / "settings.json").write_text(json.dumps({"editor.fontSize": 12}))
    with pytest.raises(RunError, match="fingerprint"):
        read_run(tmp_path)


def test_there_is_one_row_per_run(tmp_path):
    runs = [read_run(make_run(tmp_path / "one", clock=True))]
    # 10 local steps in 1 s of training; the mean of (0.1, 0.6, 0.8)
    [row] = compare_runs(runs)
    assert row.last10 == pytest.approx(0.5)
    assert row == TableRow(
        "one", "afa-cd", True, 2, 0.8, row.last10, 20.0, 2, local_steps_per_second=10
    )


def test_a_run_without_evaluations_has_no_numbers(tmp_path):
    run = read_run(make_run(tmp_path / "one", finished=False, accuracies=()))
    assert compare_runs([run]) == [
        TableRow("one", "afa-cd", False, 0, None, None, None, 0, None),
    ]


@pytest.mark.parametrize("judged", [False, True])
def test_a_store_stands_where_its_updates_are_not_where_it_was_evaluated(tmp_path, judged):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=4)
        fill(store, workers=3, updates=224, m=4)
        if judged:
            store.add_evaluation(10, {"accuracy": 0.5})
    [row] = compare_runs(read_runs([tmp_path / "run.db"]))
    assert (row.rounds, row.updates, row.finished) == (56, 224, False)
    assert row.virtual_s == pytest.approx(0.223, abs=1e-3)
    assert row.final == (0.5 if judged else None)


def test_the_csv_has_every_evaluation(tmp_path):
    runs = [read_run(make_run(tmp_path / "one")), read_run(make_run(tmp_path / "two", clock=True))]
    lines = write_csv(runs, tmp_path / "a" / "all.csv").read_text().splitlines()
    assert lines[0] == ("run,rule,round,virtual_s,updates,local_steps,train_seconds,accuracy,loss")
    assert lines[2].startswith("one,afa-cd,1,,1,5,0.5,0.6,")
    assert lines[6].startswith("two,afa-cd,2,20,2,10,1,0.8,")


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="Cannot write"):
        write_csv([], tmp_path)
