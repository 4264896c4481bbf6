"""One worker of four sends updates that are far too long; the others go on training.

The server is a process with its defaults, the updates travel over plain sockets. The honest workers
train softmax regression on the embedded digits, each on labels of its own.
"""

from __future__ import annotations

import time
from contextlib import closing

import numpy as np
import pytest

from anarchic import Layout, Update, wire
from anarchic.data import load
from anarchic.server.replay import replay
from anarchic.server.store import open_store
from tests.chaos.servers import ServerProcess
from tests.chaos.talk import Line, get_json

LAYOUT = Layout.of({"bias": ((10,), "F32"), "weight": ((10, 64), "F32")})
HONEST = ("ann", "bob", "cleo")
HUGE = 1e15
RULES = {"afa-cd": (), "afa-cs": ("--rule", "afa-cs", "--cap", "8")}

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("rule", RULES)]


def digits():
    data = load("digits")
    pixels, labels = (np.asarray(each) for each in (data.x_train, data.y_train))
    return pixels.reshape(len(pixels), -1).astype(np.float64), labels.astype(int)


class Training:
    """Honest workers in turn, and one that is not."""

    def __init__(self, port):
        self.port, self.sent = port, 0
        self.pixels, self.labels = digits()
        self.rng = np.random.default_rng(0)

    @property
    def version(self):
        return get_json(self.port, "/v1/status")[1]["version"]

    def model(self):
        with Line(self.port) as line:
            return wire.decode_snapshot(line.get("/v1/model").body)[1]

    def probabilities(self, params, rows):
        tensors = LAYOUT.split(params.astype(np.float64))
        scores = self.pixels[rows] @ tensors["weight"].T + tensors["bias"]
        with np.errstate(over="ignore", invalid="ignore"):
            scores -= scores.max(1, keepdims=True)
            scores = np.exp(scores)
            return scores / scores.sum(1, keepdims=True)

    def loss(self):
        every = np.arange(len(self.labels))
        right = self.probabilities(self.model().params, every)[every, self.labels]
        return float(-np.log(np.maximum(right, 1e-300)).mean())

    def gradient(self, worker, params):
        own = np.flatnonzero(self.labels % len(HONEST) == HONEST.index(worker))
        rows = self.rng.choice(own, 64)
        wrong = self.probabilities(params, rows)
        wrong[np.arange(64), self.labels[rows]] -= 1
        tensors = {"weight": wrong.T @ self.pixels[rows] / 64, "bias": wrong.mean(0)}
        return LAYOUT.join({name: each.astype(np.float32) for name, each in tensors.items()})

    def push(self, worker, version, direction):
        self.sent += 1
        update = Update(worker, version, 1, 0.5, direction, id=str(self.sent))
        body = wire.encode_update(LAYOUT, update, worker=worker)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with Line(self.port) as line:
                answer = line.push(body)
            if answer.status != 429:  # its share of the next step is waiting already
                return answer
            time.sleep(0.02)
        raise AssertionError("never accepted")

    def honest(self, updates):
        for turn in range(updates):
            worker, model = HONEST[turn % len(HONEST)], self.model()
            direction = self.gradient(worker, model.params)
            assert self.push(worker, model.version, direction).status in (202, 422)

    def poison(self):
        direction = np.full(LAYOUT.dim, HUGE / LAYOUT.dim**0.5, np.float32)
        assert self.push("mallory", self.version, direction).status == 202


@pytest.fixture
def training(rule, tmp_path):
    init = tmp_path / "model.safetensors"
    wire.save_model(init, LAYOUT, np.zeros(LAYOUT.dim, np.float32))
    options = ("--open-enrolment", "--keep-payloads", *RULES[rule])
    with ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *options) as server:
        training = Training(server.port)
        training.server = server
        yield training


def clipped(training):
    """How often the server says so, in its log and in its metrics."""
    with Line(training.port) as line:
        text = line.get("/metrics").body.decode()
    counted = [line for line in text.splitlines() if line.startswith("anarchic_updates_clipped_t")]
    return training.server.text().count('"event": "clipped"'), float(counted[0].split()[1])


@pytest.mark.tried(
    "one push of 1e15 by one of four workers, AFA-CD and AFA-CS",
    before="the loss rises from 0.76 to 2.30 and stays",
    now="the update counts for nothing; the loss goes on falling, log and metrics say so",
)
def test_one_huge_update_does_not_end_training(training):
    training.honest(75)
    before = training.loss()
    training.poison()
    training.honest(60)
    assert before < 1.5
    assert training.loss() < before
    assert clipped(training) == (1, 1.0)
    assert training.server.stop() == 0
    with closing(open_store(training.server.store)) as store:
        assert replay(store).equal


@pytest.mark.tried(
    "1e15 as the very first update of a run",
    before="the run never learns anything",
    now="it counts for nothing",
)
def test_a_huge_first_update_does_not_end_training(training):
    training.poison()
    training.honest(90)
    assert training.loss() < 1.2


@pytest.mark.tried(
    "every second update of a run is 1e15, all by one of four workers",
    before="the run never learns anything",
    now="its loss falls as if they were zero",
)
def test_a_worker_that_always_sends_huge_updates_does_not_end_training(training):
    for _ in range(40):
        training.poison()
        training.honest(1)
    training.honest(40)
    assert training.loss() < 1.5
