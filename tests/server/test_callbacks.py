"""Callbacks hear of a live run, and nothing that they do holds it up."""

from __future__ import annotations

import json
import time

import pytest

from anarchic import wire
from anarchic.errors import ConfigError
from anarchic.server.callbacks import Callbacks
from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line
from tests.chaos.updates import encoded
from tests.server.test_evaluate import _step, until


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Starts servers of which every update makes a version, in a directory of their own."""
    monkeypatch.chdir(tmp_path)
    started = []

    def start(*words):
        init = write_model(tmp_path / "model.safetensors")
        words = ("--open-enrolment", "--m", "1", *words)
        server = ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *words)
        started.append(server)
        server.start()
        server.await_ready()
        return server

    yield start
    for server in started:
        if server.running:
            server.kill()


def heard(tmp_path):
    path = tmp_path / "heard.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
def test_a_callback_hears_of_a_live_run(tmp_path, served):
    server = served(
        "--callback", "tests.server.hearing:Recording,keep-best",
        "--evaluate", "tests.server.evaluations:failing",
    )  # fmt: skip
    until(lambda: any(each["event"] == "version" for each in heard(tmp_path)))
    _step(server, range(3))
    until(lambda: any(each.get("metrics") == {"seen": 3} for each in heard(tmp_path)))
    assert server.stop() == 0
    told = heard(tmp_path)
    assert told[0] == {
        "event": "begin", "live": True, "rule": "afa-cd", "names": list(LAYOUT.names)
    }  # fmt: skip
    assert [each["event"] for each in told][-1] == "end"
    assert told[-1]["summary"] == {"version": 3, "seen": 3}
    versions = [each["version"] for each in told if each["event"] == "version"]
    assert versions == sorted(set(versions))
    assert versions[-1] == 3
    last = [each for each in told if each["event"] == "evaluation"][-1]
    _, params, _ = wire.load_model(tmp_path / "model.safetensors")
    assert set(last["total"]) == set(LAYOUT.names)
    assert sum(last["total"].values()) != pytest.approx(params.sum())  # of a later version
    assert "callback_failed" in server.text()  # keep-best, which misses the metric that it wants
    assert "There is no accuracy and no loss in the evaluation, which has seen" in server.text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("Failing", '"callback_failed"'),
        ("Stopping", "enough; the run goes on"),
        ("Dying", '"callbacks_died"'),
        ("Hanging", None),
    ],
)
def test_a_callback_that_misbehaves_is_logged_once_and_the_server_goes_on(served, name, word):
    server = served("--callback", f"tests.server.hearing:{name}")
    _step(server, range(2))
    if word is not None:
        until(lambda: word in server.text())
    with Line(server.port) as line:
        assert line.push(encoded(LAYOUT, "late", "late")).status == 202
    until(lambda: server.status()["version"] == 3)
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 20
    assert word is None or server.text().count(word) == 1


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("nobody", "There is no callback 'nobody'; there are tensorboard, mlflow, wandb"),
        ("tests.server.hearing:Nobody", "has no 'Nobody'"),
        ("keep-best,tests.server.hearing:time", "not a callback"),
    ],
)
def test_a_callback_that_there_is_not_is_refused_before_the_start(names, says):
    with pytest.raises(ConfigError, match=says):
        Callbacks(names, lambda event, **facts: None)
