"""Run directories that cannot be made or read."""

from __future__ import annotations

import pytest

from anarchic.errors import RunError
from anarchic.participation import ConstantSteps, Sampler
from anarchic.sim.record import RunDirectory


def table():
    return Sampler(2, 1, ConstantSteps(1)).timetable(0, 2)


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    place = tmp_path / "file" / "run"
    with pytest.raises(RunError, match=rf"cannot be recorded in {place}: Not a directory"):
        RunDirectory.create(place, {"fingerprint": "x"}, table())
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[1, 2]", "holds a list, not an object"),
        ("{}", "has no fingerprint"),
        ("{", "cannot be read"),
    ],
)
def test_settings_of_no_run_are_refused(tmp_path, content, says):
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(RunError, match=says):
        RunDirectory(tmp_path).settings()


@pytest.mark.parametrize("content", ["garbage\n", "round,loss\n1,low\n"])
def test_metrics_of_another_kind_are_refused(tmp_path, content):
    (tmp_path / "metrics.csv").write_text(content)
    with pytest.raises(RunError, match=r"metrics\.csv cannot be read: "):
        RunDirectory(tmp_path).metrics()
