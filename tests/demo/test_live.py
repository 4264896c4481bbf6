from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from anarchic.cli.app import app
from anarchic.cli.demo import live_facts, what_next
from anarchic.demo import live
from anarchic.demo.live import LiveResult, run_live
from anarchic.errors import RunError
from anarchic.report.picture import picture
from anarchic.server.replay import Replay


@pytest.mark.slow
def test_the_live_demo_loses_nothing(tmp_path):
    told, looks, pages, early = [], [], [], {}
    out = tmp_path / "live"

    def watch(seen):
        looks.append(seen)
        if seen.share > 0.2 and not early.get("count"):
            early.update(pictured(pages[0])["curves"])

    result = run_live(out, seconds=16.0, tell=told.append, watch=watch, look=pages.append)
    assert len(pages) == 1
    late = picture(out / "run.db")["curves"]
    assert early["metrics"] == late["metrics"] == ["accuracy", "loss"]
    assert 0 < early["count"] < late["count"]
    killed = [look.server for look in looks].index(False)
    assert late["rows"][-1][0] > looks[killed].version  # the curve goes on
    assert late["rows"][-1][2] > early["rows"][0][2]
    assert {look.server for look in looks} == {True, False}
    assert {look.killed for look in looks} >= {(), ("worker-1", "worker-6")}
    names = {f"worker-{number}" for number in range(1, 9)}
    assert {worker["worker"] for worker in looks[-1].workers} == names
    assert [look.version for look in looks] == sorted(look.version for look in looks)
    assert (result.worker_kills, result.server_kills) == (2, 1)
    assert len(told) == 4
    assert result.accepted > 0
    assert result.folded + result.waiting >= result.accepted
    assert (result.lost, result.doubled) == (0, 0)
    assert result.replay.equal
    assert result.sound
    assert result.replay.updates == result.folded
    assert result.accuracy > result.first_accuracy
    secrets = [path.read_text().strip() for path in (tmp_path / "live").glob("*.token")]
    logs = "".join(path.read_text() for path in (tmp_path / "live").glob("*.log"))
    assert len(secrets) == 8
    assert not any(secret.partition(".")[2] in logs for secret in secrets)


def pictured(page):
    """The whole picture, as the live page is sent it first."""
    with httpx.stream("GET", f"{page}v1/live", timeout=20) as answer:
        line = next(line for line in answer.iter_lines() if line.startswith("data: "))
        return json.loads(line.removeprefix("data: "))


def test_the_counts_of_the_result_add_up(tmp_path):
    result = LiveResult(
        accuracy=0.9, first_accuracy=0.1, version=28, accepted=114, folded=112, waiting=3,
        refused=0, lost=0, doubled=0, replay=Replay(28, 112, True), worker_kills=2, server_kills=1,
    )  # fmt: skip
    facts = dict(live_facts(result, tmp_path))
    assert facts["updates stored"] == "115"
    assert facts["  in a version"] == "112; 3 wait for the next step"
    assert facts["  accepted"] == "114 answers received, 1 cut off"


def test_the_end_names_what_shows_the_run_again():
    assert "  anarchic view demo-live/run.db --open " in "\n".join(what_next(Path("demo-live")))
    assert "  anarchic report 'my demo/run.db' --out r.html " in "\n".join(
        what_next(Path("my demo"))
    )


def test_workers_that_never_start_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "START_S", 0.0)
    with pytest.raises(RunError, match=r"no version within 0 s: see the logs"):
        live._Processes(tmp_path, print)._await_first_version()


def test_the_live_demo_leaves_other_directories_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    done = CliRunner().invoke(app, ["demo", "--live", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "was not made by the demo" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
