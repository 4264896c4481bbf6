"""The commands that steer a run, against a server at work and without one."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from anarchic import wire
from anarchic.server.commands import commands
from anarchic.server.store import open_store
from tests.server.live import BYTES, stored
from tests.server.make import begun, body
from tests.waiting import until
from tests.worker.test_in_process import served


@pytest.fixture
def run(tmp_path):
    """(service, push) of a server at work."""
    with served(tmp_path / "run.db", rules={"m": 2}) as (service, transport):
        client = httpx.Client(transport=transport, base_url="http://server", headers=BYTES)
        sent = 0

        def push(worker, base=0):
            nonlocal sent
            sent += 1
            made = body(worker, str(sent), base, seed=sent)
            answer = client.post("/v1/updates", content=made)
            return answer.status_code, answer.json().get("error"), answer.headers.get("retry-after")

        yield service, push


def version_of(service):
    return service.published.newest.version


@pytest.mark.slow
def test_a_day_of_an_operator(run, anarchic, refused, tmp_path):
    service, push = run
    store = tmp_path / "run.db"
    for step in range(3):
        assert push("ann", step)[0] == push("eve", step)[0] == 202
        until(lambda step=step: version_of(service) == step + 1)
    shown = anarchic("pause", store)
    assert (shown.exit_code, shown.output.splitlines()[0]) == (
        0,
        "Command 1, pause, holds after version 3.",
    )
    until(lambda: service.steering.paused)
    assert push("ann", 3) == (503, "paused", "5")
    assert service.status()["state"] == "paused"
    anarchic("resume", store)
    until(lambda: not service.steering.paused)
    assert push("ann", 3)[0] == 202
    shown = anarchic("set", store, "m=1", "server_lr=0.5")
    assert "m=1 (was 2), server_lr=0.5 (was 1.0)." in shown.output
    until(lambda: version_of(service) == 4)
    shown = anarchic("rollback", store, "--without", "eve")
    assert "Version 5 is that of version 4 without eve, from 4 updates" in shown.output
    assert "token revoke eve" in shown.output
    until(lambda: version_of(service) == 5)
    assert push("ann", 4)[:2] == (409, "withdrawn")
    assert push("ann", 5)[0] == 202
    until(lambda: version_of(service) == 6)
    told = "Version 2 was withdrawn with versions 1 to 4 (command 4, rollback without eve"
    assert told in refused(2, "rollback", store, "--to", 2)  # it has eve's updates
    shown = anarchic("rollback", store, "--to", 2, "--withdrawn")
    assert "Version 7 is version 2 again; versions 3 to 6 are withdrawn." in shown.output
    anarchic("end", store)
    until(lambda: service.status()["state"] == "ended")
    assert push("ann", 7)[:2] == (410, "run_ended")
    shown = anarchic("log", store)
    assert re.findall(r"pause|resume|set|rollback|end", shown.output)
    found = [json.loads(line) for line in anarchic("log", store, "--json").output.splitlines()]
    kinds = ["pause", "resume", "set", "rollback", "rollback", "end"]
    assert [command["kind"] for command in found] == kinds
    assert {command["outcome"] for command in found} == {"applied"}
    assert "equal to the published" in anarchic("replay", store).output
    shown = anarchic("replay", store, "--until", 2, "--out", tmp_path / "two.safetensors")
    assert "version 2, parameters equal" in shown.output
    shown = anarchic("export", store, "--out", tmp_path / "newest.safetensors")
    assert shown.output == f"Version 7 is in {tmp_path / 'newest.safetensors'}.\n"
    two, newest = (wire.load_model(tmp_path / f"{name}.safetensors") for name in ("two", "newest"))
    assert two[1].tobytes() == newest[1].tobytes()
    assert newest[2]["version"] == "7"


def test_misuse_is_refused_before_anything_is_written(anarchic, refused, tmp_path):
    store = tmp_path / "run.db"
    with stored(store) as opened:
        begun(opened, m=2)
    assert "Did you mean 'server_lr'?" in refused(2, "set", store, "server-lr=1")
    assert "NAME=VALUE" in refused(2, "set", store, "m")
    assert "given twice" in refused(2, "set", store, "m=1", "m=2")
    assert "at most 2147483647" in refused(2, "set", store, "m=99999999999999999999")
    assert "There is no version 7: they go from 0 to 0" in refused(2, "replay", store, "--until", 7)
    assert "--to N" in refused(2, "rollback", store)
    assert "stands at version 0" in refused(2, "rollback", store, "--to", 7)
    assert "--keep-payloads" in refused(2, "rollback", store, "--without", "ann")
    assert "got 'first'" in refused(2, "export", store, "--version", "first", "--out", "x")
    assert "no directory" in refused(2, "export", store, "--out", tmp_path / "no" / "x")
    assert "There is no store" in refused(2, "pause", tmp_path / "other.db")
    with stored(store) as opened:
        assert commands(opened) == []


def test_without_a_server_a_command_is_applied_here_unless_it_is_not_to_wait(anarchic, tmp_path):
    store = tmp_path / "run.db"
    with stored(store) as opened:
        begun(opened, m=2)
    assert "waits" in anarchic("set", store, "m=3", "--no-wait").output
    assert "holds after version 0" in anarchic("pause", store).output
    with stored(store) as opened:
        assert [c.outcome for c in commands(opened)] == ["applied", "applied"]


def test_a_setting_that_is_taken_away_is_none(anarchic, tmp_path):
    with stored(tmp_path / "run.db") as opened:
        begun(opened, m=2, clip=3.0)
    shown = anarchic("set", tmp_path / "run.db", "clip=none", "m=3").output
    assert "clip=none (was 3.0), m=3 (was 2)." in shown
    assert "clip=2.0 (was none)." in anarchic("set", tmp_path / "run.db", "clip=2").output


def test_the_best_version_that_is_kept_is_exported(anarchic, refused, tmp_path):
    store, out = tmp_path / "run.db", tmp_path / "best.safetensors"
    with served(store, rules={"m": 1}) as (service, transport):
        client = httpx.Client(transport=transport, base_url="http://server", headers=BYTES)
        for step in range(4):
            client.post("/v1/updates", content=body("ann", str(step), step, seed=step))
            until(lambda step=step: version_of(service) == step + 1)
    assert "None of the versions" in refused(1, "export", store, "--version", "best", "--out", out)
    with closing(open_store(store)) as opened:
        for version, accuracy in ((1, 0.5), (2, 0.9), (3, 0.7), (99, 1.0)):
            opened.add_evaluation(version, {"accuracy": accuracy, "loss": accuracy})
    shown = anarchic("export", store, "--version", "best", "--out", out)
    assert shown.output == f"Version 2, the best by accuracy (0.9) is in {out}.\n"
    shown = anarchic("export", store, "--version", "best", "--metric", "loss", "--out", out)
    assert shown.output.startswith("Version 1, the best by loss (0.5)")
    anarchic("rollback", store, "--to", 1)
    shown = anarchic("export", store, "--version", "best", "--out", out)
    assert shown.output.startswith("Version 1, ")  # 2 and 3 were withdrawn
    told = refused(2, "export", store, "--version", "best", "--metric", "recall", "--out", out)
    assert "they have accuracy, loss" in told
    told = refused(2, "export", store, "--version", "77", "--out", out)
    assert "There is no version 77: the newest is 5" in told
    told = refused(2, "export", store, "--version", "3", "--out", out)
    assert "Version 3 was withdrawn with versions 2 to 4 (command 1, rollback to 1" in told
    assert "(0 to 1, 5)" in told
    shown = anarchic("export", store, "--version", "3", "--withdrawn", "--out", out)
    assert "It was withdrawn: command 1, rollback to 1" in shown.output


@pytest.mark.slow
def test_the_commands_of_the_page_run_as_they_stand_there(anarchic, tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text(encoding="utf-8")
    section = page.split("\n## Steer a run\n")[1].split("\n## ")[0]
    lines = re.findall(r"^anarchic .*$", section.split("```bash\n")[1].split("```")[0], re.M)
    assert len(lines) == 11
    monkeypatch.chdir(tmp_path)
    with served(tmp_path / "run.db", rules={"m": 1}) as (service, transport):
        client = httpx.Client(transport=transport, base_url="http://server", headers=BYTES)
        for step in range(8):
            made = body("eve" if step == 2 else "ann", str(step), step, seed=step)
            client.post("/v1/updates", content=made)
            until(lambda step=step: version_of(service) == step + 1)
        with closing(open_store("run.db")) as opened:
            opened.add_evaluation(1, {"accuracy": 0.9})
        shown = [anarchic(*shlex.split(line, comments=True)[1:]) for line in lines]
    assert [each.exit_code for each in shown] == [0] * 11
    told = section.split("```text\n")[1].split("```")[0]
    assert shown[2].output == told
    assert "equal to" in shown[6].output
    assert shown[9].output.startswith("Version 1, the best by accuracy")


def test_no_command_writes_over_a_store(anarchic, refused, tmp_path):
    store, other = tmp_path / "run.db", tmp_path / "other.db"
    with closing(open_store(store, keep_payloads=True)) as opened:
        begun(opened, m=2)
    with stored(other) as opened:
        begun(opened, m=2)
    before = store.read_bytes(), other.read_bytes()
    for words in (
        ("export", store, "--out", store),
        ("export", store, "--out", other),
        ("replay", store, "--out", store),
        ("token", "add", "ann", "--store", store, "--out", other),
        ("compare", store, "--csv", other),
    ):
        assert "the store of a run, and is not written over" in refused(2, *words), words
    assert (store.read_bytes(), other.read_bytes()) == before
