"""A package with a rule, installed beside ours: its rule is used by name in every command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_serve import free_port

pytest.importorskip("torch")
SOURCE = Path(__file__).parents[2] / "src"
RULE = '''
from dataclasses import dataclass, field
from anarchic import RuleState, SteppingRule, WorkerRows

@dataclass
class SignState(RuleState):
    votes: dict = field(default_factory=dict)

@dataclass(frozen=True)
class Signs(SteppingRule):
    """Every m updates, a step of one length along the sign of their sum."""

    m: int = 3
    size: float = 0.01

    def begin(self, params):
        return SignState(params)

    def fold(self, state, update):
        before = state.votes.get("sum", 0.0)
        state.votes["sum"] = before + update.local_lr * update.direction

    def next_params(self, state):
        import numpy as np
        return state.params - self.size * np.sign(state.votes.pop("sum"))
'''


@pytest.fixture
def command(tmp_path):
    """The real program, in an environment in which the package is installed; as pip leaves it."""
    site = tmp_path / "site"
    info = site / "sign_rules-0.3.dist-info"
    info.mkdir(parents=True)
    (site / "sign_rules.py").write_text(RULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sign-rules\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[anarchic.rules]\nsigns = sign_rules:Signs\n")
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{SOURCE}", "COLUMNS": "200"}

    def start(*words):
        return subprocess.Popen(
            [sys.executable, "-m", "anarchic", *map(str, words)],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def finished(process, timeout_s=90):
    shown, _ = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, shown
    return shown


@pytest.mark.slow
def test_the_rule_of_a_package_is_listed_and_simulated_by_name(command):
    listed = finished(command("rules", "rules"))
    assert re.search(
        r"  signs +sign-rules  Every m updates, a step of one length along the sign", listed
    )
    assert "signs, or MODULE:NAME" in " ".join(finished(command("serve", "--help")).split())
    options = ("--rule", "signs", "--rule-option", "size=0.02", "--clip", 1)
    shown = finished(command("simulate", *options, "--rounds", 20, "--out", "run"))
    assert "signs on digits, logistic" in shown
    assert "had finished before" in finished(command("simulate", "--resume", "--out", "run"))


@pytest.mark.slow
def test_the_rule_of_a_package_is_served_and_replayed_by_name(command):
    finished(command("init", "--model", "logistic", "--out", "model.safetensors"))
    port = free_port()
    first = ("--init", "model.safetensors", "--store", "run.db", "--port", port)
    options = ("--rule", "signs", "--m", 2, "--rule-option", "size=0.02", "--clip", 1)
    server = command("serve", *first, *options, "--open-enrolment", "--keep-payloads")
    try:
        worker = ("--server", f"http://127.0.0.1:{port}", "--name", "ann", "--spool", "spool")
        shown = finished(command("work", *worker, "--task", "digits:1/2", "--updates", 6))
        assert "6 updates accepted" in shown
    finally:
        server.terminate()
        said, _ = server.communicate(timeout=30)
    assert '"version": 3' in said
    assert "6 updates" in finished(command("replay", "run.db"))
