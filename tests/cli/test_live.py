from __future__ import annotations

import pytest
from typer.testing import CliRunner

from anarchic.cli import live
from anarchic.cli.app import app
from anarchic.cli.live import Ending, _facts, run_live
from anarchic.errors import RunError
from anarchic.server.replay import Replay


@pytest.mark.slow
def test_the_live_demo_loses_nothing(tmp_path):
    told = []
    ending = run_live(
        tmp_path / "live", seconds=8.0, tell=told.append, watch=lambda part, seen: None
    )
    assert (ending.worker_kills, ending.server_kills) == (2, 1)
    assert len(told) == 4
    assert ending.accepted > 0
    assert ending.folded + ending.waiting >= ending.accepted
    assert (ending.lost, ending.doubled) == (0, 0)
    assert ending.replay.equal
    assert ending.replay.updates == ending.folded
    assert ending.accuracy > ending.first_accuracy
    secrets = [path.read_text().strip() for path in (tmp_path / "live").glob("*.token")]
    logs = "".join(path.read_text() for path in (tmp_path / "live").glob("*.log"))
    assert len(secrets) == 8
    assert not any(secret.partition(".")[2] in logs for secret in secrets)


def test_what_came_of_it_adds_up(tmp_path):
    ending = Ending(
        accuracy=0.9, first_accuracy=0.1, version=28, accepted=114, folded=112, waiting=3,
        refused=0, lost=0, doubled=0, replay=Replay(28, 112, True), worker_kills=2, server_kills=1,
    )  # fmt: skip
    facts = dict(_facts(ending, tmp_path))
    assert facts["updates stored"] == "115"
    assert facts["  in a version"] == "112; 3 wait for the next step"
    assert facts["  accepted"] == "114, as the workers heard; 1 answers were cut off"


def test_workers_that_never_come_are_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "START_S", 0.0)
    with pytest.raises(RunError, match=r"no version within 0 s: see the logs"):
        live._Stage(tmp_path, print)._await_first_version()


def test_the_live_demo_leaves_what_is_not_its_own_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    done = CliRunner().invoke(app, ["demo", "--live", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "was not made by the demo" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
