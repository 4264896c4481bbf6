"""What is installed is listed, and parts of one's own are named as module:Name."""

import json

import numpy as np
import pytest

from anarchic import wire
from tests.cli.test_serve import free_port

OWN = '''
from dataclasses import dataclass
import numpy as np
from anarchic import AfaCd, Stateless, SteppingRule
from anarchic.data import Dataset, load_digits
from anarchic.participation import Timetable
from anarchic.worker import digits_task

class Turns:
    """All workers in turn, none of them late."""
    def __init__(self, workers, m, local_steps):
        self.workers, self.m, self.local_steps = workers, m, local_steps

    def timetable(self, rng, rounds):
        rows = np.arange(rounds * self.m, dtype=np.int32)
        steps = np.full(len(rows), self.local_steps, np.int32)
        table = rows % self.workers, rows // self.workers, rows // self.m, steps
        return Timetable(self.workers, self.m, *table)

@dataclass(frozen=True)
class Punctual:
    """Always the same idle time."""
    idle_s: float
    @property
    def mean_s(self):
        return self.idle_s
    def traits(self, rng, workers):
        return np.zeros(workers)
    def pulls(self, rng, traits, free_s):
        return free_s + self.idle_s

@dataclass(frozen=True)
class Last(SteppingRule):
    """Step along the last of m updates."""
    m: int = 2
    def begin(self, params):
        return AfaCd(self.m).init(params)
    def fold(self, state, update):
        state.total[:] = update.local_lr * update.direction
    def next_params(self, state):
        return state.params - state.total

@dataclass(frozen=True)
class Half(Stateless):
    """Half of a step."""
    def step(self, gradient, x, start, held):
        return gradient / 2

def few(data_dir=None, *, count: int = 100):
    """Some of the digits."""
    all = load_digits()
    return Dataset("few", all.x_train[:count], all.y_train[:count], all.x_test, all.y_test, 10)

def flat(data):
    """A matrix and no more."""
    from torch import nn
    return nn.Sequential(nn.Flatten(), nn.Linear(64, data.classes))

def task():
    return digits_task("digits:1/2")
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_everything_that_is_installed_is_listed_with_one_line(anarchic):
    shown = anarchic("rules").output.splitlines()
    lines = [line.split(maxsplit=2) for line in shown]
    assert ["afa-cs", "anarchic", "Anarchic federated averaging, cross-silo form."] in lines
    assert "participation:" in shown
    assert sum(line.startswith("  ") for line in shown) > 25
    only = anarchic("rules", "models").output.splitlines()
    assert (only[0], len(only)) == ("models:", 5)


def test_a_kind_that_is_none_is_refused(refused):
    assert "no kind of part 'colours'; there are rules, local_rules" in refused(
        2, "rules", "colours"
    )


def test_help_names_what_is_installed(anarchic, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    simulate = " ".join(anarchic("simulate", "--help").output.split())
    assert "afa-cd, afa-cs, fedavg, fedasync, fedbuff, ca2fl, fedvarp" in simulate
    assert "generalized-async-sgd, or MODULE:NAME" in simulate
    serve = " ".join(anarchic("serve", "--help").output.split())
    assert (
        "How updates become steps: afa-cd, afa-cs, fedasync, fedbuff, ca2fl, mifa, ace, fadas"
        in serve
    )


@pytest.mark.slow
def test_every_part_of_a_run_may_be_ones_own(anarchic, own):
    pytest.importorskip("torch")
    parts = {
        "--rule": "Last",
        "--local-rule": "Half",
        "--participation": "Turns",
        "--data": "few",
        "--model": "flat",
    }
    words = [word for flag, name in parts.items() for word in (flag, f"own_parts:{name}")]
    more = ("--data-option", "count=60", "--rounds", 5, "--out", "run")
    shown = anarchic("simulate", *words, *more)
    assert shown.exit_code == 0, shown.output
    settings = json.loads((own / "run" / "settings.json").read_text())
    assert (settings["participation"], settings["data_options"]) == (
        "own_parts:Turns",
        {"count": 60},
    )
    again = anarchic("simulate", "--resume", "--out", "run")
    assert "had finished before" in again.output
    shown = anarchic("timetable", "--participation", "own_parts:Turns", "--rounds", 4)
    assert shown.exit_code == 0, shown.output


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("rule", ["afa-cd", "fedavg"])
def test_an_idle_time_of_ones_own_has_habits_around_it(anarchic, rule):
    words = ("--participation", "own_parts:Punctual", "--idle-s", 7, "--slow-share", 0.5)
    shown = anarchic("timetable", *words, "--rule", rule, "--rounds", 20)
    assert shown.exit_code == 0, shown.output


@pytest.mark.usefixtures("own")
def test_what_an_own_participation_does_not_take_is_refused(refused):
    words = ("simulate", "--participation", "own_parts:Turns", "--rounds", 2)
    assert "has no use for idle_s=9.0" in refused(2, *words, "--idle-s", 9)
    punctual = ("timetable", "--participation", "own_parts:Punctual", "--rounds", 2)
    assert "has no use for max_staleness=3" in refused(2, *punctual, "--max-staleness", 3)
    not_one = ("simulate", "--participation", "own_parts:few", "--rounds", 2)
    assert "Dataset is no participation process" in refused(2, *not_one)


@pytest.mark.slow
def test_a_server_and_a_worker_take_parts_of_ones_own(anarchic, process, own):
    first = ("--task", "own_parts:task", "--out", "model.safetensors")
    assert anarchic("init", *first).exit_code == 0
    port = free_port()
    place = f"http://127.0.0.1:{port}"
    server = process(
        "serve", "--init", "model.safetensors", "--store", "run.db", "--port", port,
        "--rule", "own_parts:Last", "--m", 1, "--open-enrolment", "--keep-payloads",
    )  # fmt: skip
    try:
        shown = anarchic(
            "work", "--server", place, "--name", "ann", "--updates", 3, "--spool", own / "spool",
            "--task", "own_parts:task", "--local-rule", "own_parts:Half", "--local-steps", 2,
        )  # fmt: skip
        assert shown.exit_code == 0, shown.output
    finally:
        server.terminate()
        _, said = server.communicate(timeout=20)
    assert '"version": 3' in said
    shown = anarchic("replay", "run.db")
    assert (shown.exit_code, "3 updates" in shown.output) == (0, True), shown.output


def test_a_run_whose_rule_is_gone_says_which(refused, own):
    wire.save_model(own / "model.safetensors", *tiny())
    words = ("--init", "model.safetensors", "--store", "run.db", "--open-enrolment")
    told = refused(2, "serve", *words, "--rule", "own_parts:Gone", "--port", free_port())
    assert "Module 'own_parts' has no 'Gone'" in told


def tiny():
    from anarchic import Layout

    return Layout.of({"w": ((2,), "F32")}), np.zeros(2, np.float32)
