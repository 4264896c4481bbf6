import json

import pytest

from anarchic.errors import RunError
from anarchic.report.runs import first_at, read_run, read_runs
from tests.report.make import make_run


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
