"""Workers against the real server, in processes of their own."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from anarchic import wire
from anarchic.data import load_digits
from anarchic.worker import Worker, digits_task
from tests.waiting import until

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("sqlalchemy")
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def start(*arguments, **settings):
    return subprocess.Popen(
        [sys.executable, "-m", "anarchic", *map(str, arguments)], env=ENVIRONMENT, **settings
    )


class Running:
    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = open(folder / "server.log", "ab")  # noqa: SIM115  # closed with the server
        model = folder / "model.safetensors"
        assert start("init", "--model", "logistic", "--out", model, stdout=self.log).wait(60) == 0
        self.process = None

    def start(self):
        settings = ["--rule", "afa-cd", "--m", 2, "--per-worker", 2, "--open-enrolment"]
        files = ["--init", self.folder / "model.safetensors", "--store", self.folder / "run.db"]
        port = ["--port", self.port]
        self.process = start("serve", *files, *settings, *port, stderr=self.log, stdout=self.log)
        until(self.answers)

    def answers(self):
        try:
            with urllib.request.urlopen(f"{self.url}/v1/status", timeout=1) as answer:
                return json.load(answer)
        except OSError:
            return None

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def close(self):
        self.process.kill()
        self.process.wait(10)
        self.log.close()


@pytest.fixture
def real(tmp_path):
    running = Running(tmp_path)
    running.start()
    yield running
    running.close()


def right(params):
    """The share of test digits that a model knows."""
    data = load_digits()
    model = digits_task("digits:1/1").layout.split(params)
    scores = data.x_test.reshape(len(data.y_test), -1) @ model["weight"].T + model["bias"]
    return (scores.argmax(axis=1) == data.y_test).mean()


@pytest.mark.slow
def test_pull_and_push_against_a_real_server(real):
    with Worker(real.url, name="ann", spool=real.folder / "spool") as worker:
        first = worker.pull()
        assert worker.pull() is first
        direction = np.ones(worker.layout.dim, np.float32)
        finished = worker.encode(wire_update(direction))
        assert worker.send(finished).status == "accepted"
        assert worker.send(finished).status == "duplicate"
        worker.push(direction, local_lr=0.5)
        until(lambda: worker.pull().version == 1)
        assert worker.pull().params.max() == -0.5


def wire_update(direction):
    from anarchic import Update

    return Update("ann", 0, 1, 0.5, direction)


@pytest.mark.slow
def test_workers_outlive_a_killed_server_and_lose_nothing(real):
    workers = [
        start(
            *["work", "--server", real.url, "--task", f"digits:{n}/3", "--name", f"worker-{n}"],
            *["--spool", real.folder / f"spool-{n}", "--updates", 25, "--policy", "random:0.1"],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in (1, 2, 3)
    ]
    until(lambda: (real.answers() or {}).get("version", 0) >= 3, 60)
    real.kill()
    real.start()
    shown = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0], shown
    assert any('"event": "retry"' in err for _, err in shown)
    for out, _ in shown:
        assert out.startswith("25 updates accepted, 0 too old, 0 refused, 0 diverged, 0 left")
    until(lambda: real.answers()["version"] == 37)  # 75 updates, two a step
    with Worker(real.url, name="ann") as worker:
        assert right(worker.pull().params) > 0.8


@pytest.mark.slow
def test_a_worker_waits_while_the_run_is_paused_and_stops_with_0_when_it_ends(real):
    """Commands come from other processes; what they did survives a kill of the server."""
    store = real.folder / "run.db"
    place = ["--task", "digits:1/3", "--name", "ann", "--spool", real.folder / "spool"]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    worker = start("work", "--server", real.url, *place, "--policy", "random:0.05", **pipes)
    until(lambda: (real.answers() or {}).get("version", 0) >= 2, 60)
    assert start("pause", store).wait(60) == 0
    assert real.answers()["state"] == "paused"
    version = real.answers()["version"]
    real.kill()
    real.start()
    status = real.answers()
    assert (status["state"], status["version"]) == ("paused", version)
    assert worker.poll() is None
    assert start("end", store).wait(60) == 0
    out, err = worker.communicate(timeout=60)
    assert worker.returncode == 0, err
    assert out.startswith("The run has ended.\n")
    assert '"code": "paused"' in err
    until(lambda: real.answers()["buffered"] == 0)


@pytest.mark.slow
def test_a_worker_needs_no_torch(real):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from anarchic.cli import main\n"
        f"sys.argv = ['anarchic', 'work', '--server', {real.url!r}, '--task', 'digits:1/2',"
        f" '--name', 'ann', '--updates', '3', '--spool', {str(real.folder / 'spool')!r}]\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 updates accepted")
    assert wire.load_model(real.folder / "model.safetensors")[0].dim == 650
