import pytest

from anarchic.errors import ConfigError
from anarchic.report.runs import read_run
from anarchic.report.table import TableRow, compare_runs, write_csv
from tests.report.make import make_run


def test_there_is_one_row_per_run(tmp_path):
    runs = [read_run(make_run(tmp_path / "one", clock=True))]
    # 10 local steps in 1 s of training; the mean of (0.1, 0.6, 0.8)
    [row] = compare_runs(runs)
    assert row.last10_accuracy == pytest.approx(0.5)
    assert row == TableRow(
        "one", "afa-cd", True, 2, 0.8, row.last10_accuracy, 20.0, 2, local_steps_per_second=10
    )


def test_a_run_without_evaluations_has_no_numbers(tmp_path):
    run = read_run(make_run(tmp_path / "one", finished=False, accuracies=()))
    assert compare_runs([run]) == [
        TableRow("one", "afa-cd", False, 0, None, None, None, 0, None),
    ]


def test_the_csv_has_every_evaluation(tmp_path):
    runs = [read_run(make_run(tmp_path / "one")), read_run(make_run(tmp_path / "two", clock=True))]
    lines = write_csv(runs, tmp_path / "a" / "all.csv").read_text().splitlines()
    assert lines[0] == ("run,rule,round,virtual_s,updates,local_steps,train_seconds,accuracy,loss")
    assert lines[2].startswith("one,afa-cd,1,,1,5,0.5,0.6,")
    assert lines[6].startswith("two,afa-cd,2,20,2,10,1,0.8,")


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="Cannot write"):
        write_csv([], tmp_path)
