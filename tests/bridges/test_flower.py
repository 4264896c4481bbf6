"""Flower clients as they are, as workers at a real server: each way that Flower knows to say it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

from anarchic import Layout, Snapshot, wire
from anarchic.bridges.flower import (
    FlowerTask,
    app_config,
    parse_config,
    run,
    statistics,
    tensors_of,
    write_first,
)  # fmt: skip
from anarchic.errors import ConfigError
from anarchic.worker import Worker, WorkSettings
from tests.bridges.serving import INIT, await_version, served
from tests.kinds.outcome import learnt

ROOT = Path(__file__).parents[2]
LINE = np.array([1.0, -2.0, 0.5])
OTHERS = """
from flower_client import Client, load
import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

def old_client_fn(cid: str):
    return Client(int(cid))

def client_fn(context):
    return Client(int(context.node_config["partition-id"])).to_client()

app = ClientApp(client_fn)
messages = ClientApp()

def first():
    return {"line.weight": np.zeros(3, np.float32), "line.bias": np.zeros(1, np.float32)}

@messages.train()
def train(message, context):
    found = {name: each.numpy() for name, each in message.content["arrays"].items()}
    client = Client(int(context.node_config["partition-id"]))
    config = {"local-epochs": context.run_config["local-epochs"]}
    fitted, samples, told = client.fit([found["line.weight"], found["line.bias"]], config)
    names = dict(zip(("line.weight", "line.bias"), fitted))
    arrays = ArrayRecord({name: type(message.content["arrays"]["line.bias"])(each)
                          for name, each in names.items()})
    metrics = MetricRecord({"num-examples": samples, "train_loss": told["loss"]})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
"""


def anarchic(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "anarchic", *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "XDG_STATE_HOME": str(folder / "state"),
            "FLWR_TELEMETRY_ENABLED": "0",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


def right(weight: np.ndarray, bias: np.ndarray) -> float:
    x = np.random.default_rng(9).normal(size=(2000, 3))
    return float(np.mean((x @ weight + bias > 0) == (x @ LINE + 0.3 > 0)))


@pytest.mark.parametrize(
    ("client", "first"),
    [
        ("flower_client:client_fn", "flower_client:client_fn"),
        ("others:old_client_fn", "others:old_client_fn"),
        ("others:app", "others:app"),
        ("others:messages", "others:first"),
    ],
)
def test_two_unchanged_clients_learn_together(client: str, first: str, tmp_path: Path):
    shutil.copy(ROOT / "examples" / "flower_client.py", tmp_path)
    (tmp_path / "others.py").write_text(OTHERS)
    (tmp_path / "pyproject.toml").write_text("[tool.flwr.app.config]\nlocal-epochs = 5\n")
    given = ("--flower-config", "partition-id=0")
    done = anarchic(tmp_path, "init", "--flower", first, "--out", INIT, *given)
    assert done.returncode == 0, done.stderr
    with served(tmp_path, "--m", "1") as server:
        url = f"http://127.0.0.1:{server.port}"
        for part, name in enumerate(("ann", "bob")):
            config = ("--flower-config", f"partition-id={part}")
            who = ("--server", url, "--name", name, "--updates", "3")
            done = anarchic(tmp_path, "work", "--flower", client, *config, *who)
            assert done.returncode == 0, done.stderr
        with Worker(url) as watcher:
            await_version(watcher, 6)
            weight, bias = _line(watcher.layout.split(watcher.pull().params))
    pushes = [json.loads(line) for line in done.stderr.splitlines() if '"push"' in line]
    assert [(each["status"], each["local_steps"]) for each in pushes] == [("accepted", 1)] * 3
    assert 0 < pushes[-1]["loss"] < 0.4
    before = right(np.zeros(3), np.zeros(1))
    assert before < 0.7
    learnt(before, right(weight, bias), 0.95)


def _line(model):
    names = ("line.weight", "line.bias") if "line.bias" in model else ("0000", "0001")
    return tuple(model[name] for name in names)


class Seen(NumPyClient):
    """Adds one to whatever it is given, and keeps what it was given."""

    def __init__(self) -> None:
        self.given: list = []

    def fit(self, parameters, config):
        self.given.append((parameters, config))
        return [array + 1 for array in parameters], 7, {}


def two(one, other):
    """No client_fn."""


def test_what_a_client_is_given_and_what_is_sent():
    client = Seen()
    task = FlowerTask(client, {"lr": 0.5}, run_config={"epochs": 3})
    layout = Layout.of({"0000": ((2,), "F32"), "0001": ((), "F32")}, buffers=["0001"])
    task.begin(layout, Snapshot(4, np.zeros(3, np.float32)))
    moved, loss, samples = task.gradient(np.array([1.0, 2.0, 8.6], np.float32))
    assert moved.tolist() == [-1.0, -1.0, 10.0]  # a change, and a buffer's value at the end
    assert (loss, samples) == (None, 7)
    ((weight, counter), config) = client.given[0]
    assert weight.tolist() == [1.0, 2.0]
    assert (counter.dtype, int(counter)) == (np.int64, 9)  # the nearest whole number
    assert config["server_round"] == config["server-round"] == 5
    assert (config["lr"], config["epochs"]) == (0.5, 3)


def test_what_a_client_cannot_do_is_said_before_training(tmp_path: Path):
    task = FlowerTask(Seen(), {})
    with pytest.raises(ConfigError, match="knows its arrays by their order"):
        task.begin(Layout.of({"weight": ((2,), "F32")}), Snapshot(0, np.zeros(2)))
    with pytest.raises(ConfigError, match="no get_parameters: name a function"):
        task.first_arrays()
    with pytest.raises(ConfigError, match="does not tell its first model"):
        FlowerTask(ClientApp(), {}).first_arrays()
    with pytest.raises(ConfigError, match="--local-lr has no use with --flower"):
        run(WorkSettings(server="http://x", name="ann", local_lr=0.5), "m:client_fn")
    with pytest.raises(ConfigError, match="names a int"):
        FlowerTask(3, {})
    with pytest.raises(ConfigError, match="'two', which is no client_fn"):
        FlowerTask(two, {})
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        parse_config(["lr"])


def test_an_answer_that_does_not_fit_is_refused():
    app = ClientApp()

    @app.train()
    def train(message, context):
        arrays = ArrayRecord([np.zeros(2, np.float32)])  # by order, where it was sent by name
        metrics = MetricRecord({"num-examples": 3})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    task = FlowerTask(app, {})
    task.begin(Layout.of({"weight": ((2,), "F32")}), Snapshot(0, np.zeros(2)))
    with pytest.raises(ConfigError, match=r"weight \(none here, \[2\] there\)"):
        task.gradient(np.zeros(2, np.float32))


def test_running_statistics_are_found_by_name_or_by_form(tmp_path: Path, monkeypatch):
    mean, counter = np.zeros(3, np.float32), np.array(5)
    state = [np.ones((3, 2), np.float32), mean, mean, mean, mean + 1, counter]  # as torch has them
    assert statistics(tensors_of(state)) == {"0003", "0004", "0005"}
    named = {"bn.running_mean": mean, "bn.running_var": mean, "bn.num_batches_tracked": counter}
    assert statistics(tensors_of({"bn.weight": mean, **named})) == set(named)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "stateful_app.py").write_text(
        "import numpy as np\ndef first(): return [np.ones(3), np.ones(3), np.array(5)]\n"
    )
    write_first(tmp_path / INIT, "stateful_app:first")
    _, params, _ = wire.load_model(tmp_path / INIT)
    assert params.tolist() == [1.0] * 6 + [5.0]


def test_configurations_are_read_as_flower_reads_them(tmp_path: Path):
    assert parse_config(["a=1", "b=0.5", "c=true", "d=text", "e='7'"]) == {
        "a": 1, "b": 0.5, "c": True, "d": "text", "e": "7",
    }  # fmt: skip
    file = tmp_path / "pyproject.toml"
    assert app_config(file) == {}
    file.write_text("[tool.flwr.app.config]\nrounds = 3\n[tool.flwr.app.config.train]\nlr = 0.1\n")
    assert app_config(file) == {"rounds": 3, "train.lr": 0.1}
    file.write_text("[tool")
    with pytest.raises(ConfigError, match="cannot be read"):
        app_config(file)
