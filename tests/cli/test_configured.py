"""A server and a worker that have all their settings from files, as real processes over TLS."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from anarchic import Layout, wire
from tests.chaos.servers import ServerProcess, free_port
from tests.waiting import until

pytestmark = pytest.mark.slow

TASKS = """
from anarchic import Layout
from anarchic.worker import FunctionTask
task = FunctionTask(Layout.of({"x": ((2,), "F32")}), lambda x: (x - 1, 0.5, 1))
"""
SERVER = """
store = "run.db"
init = "model.safetensors"
m = 1
port = {port}
tls_cert = "cert.pem"
tls_key = "key.pem"
"""
WORKER = """
server = ["https://127.0.0.1:9", "https://localhost:{port}"]
task = "own_tasks:task"
token_file = "ann.token"
ca_file = "ca.pem"
spool = "spool"
local_steps = 2
updates = 2
"""


@pytest.fixture
def folder(tmp_path):
    trustme = pytest.importorskip("trustme")
    authority, home = trustme.CA(), tmp_path / "settings"
    home.mkdir()
    own = authority.issue_cert("localhost")
    own.cert_chain_pems[0].write_to_path(home / "cert.pem")
    own.private_key_pem.write_to_path(home / "key.pem")
    authority.cert_pem.write_to_path(home / "ca.pem")
    layout = Layout.of({"x": ((2,), "F32")})
    wire.save_model(home / "model.safetensors", layout, np.zeros(2, np.float32))
    (tmp_path / "own_tasks.py").write_text(TASKS)
    port = free_port()
    (home / "server.toml").write_text(SERVER.format(port=port))
    (home / "worker.toml").write_text(WORKER.format(port=port))
    return tmp_path


class Configured(ServerProcess):
    """A server that has no options but its settings file."""

    def __init__(self, config, port):
        super().__init__("", config, config.parent / "log", port=port)
        self._command = [sys.executable, "-m", "anarchic", "serve", "--config", str(config)]


def test_checked_served_and_worked_by_files_alone(folder, anarchic, process, monkeypatch):
    home, config = folder / "settings", ("--config", "settings/server.toml")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NO_PROXY", "*")
    shown = anarchic("serve", *config, "--check")
    assert (shown.exit_code, shown.output.count("failed  ")) == (1, 1), shown.output
    assert "failed   tokens" in shown.output
    words = ("ann", "--store", "settings/run.db", "--out", "settings/ann.token")
    assert anarchic("token", "add", *words).exit_code == 0
    shown = anarchic("serve", *config, "--check", "--json")
    assert (shown.exit_code, json.loads(shown.output)["ready"]) == (0, True), shown.output

    server = Configured(home / "server.toml", 0)
    server.start()
    try:
        work = ("work", "--config", "settings/worker.toml")
        until(lambda: '"listening"' in server.text() or not server.running, 30.0)
        shown = anarchic(*work, "--check")
        assert shown.exit_code == 0, shown.output  # though the first of its two servers is away
        assert shown.output.count("warning  ") == 2, shown.output
        assert "It lets ann pull and push." in shown.output
        assert not (home / "spool").exists()
        monkeypatch.setenv("ANARCHIC_LOCAL_LR", "0.25")
        monkeypatch.setenv("ANARCHIC_UPDTES", "9")
        program = process(*work)
        out, err = program.communicate(timeout=60)
        assert (program.returncode, out.startswith("2 updates accepted")) == (0, True), out + err
        warning, *events = err.splitlines()
        assert "ANARCHIC_UPDTES. Did you mean ANARCHIC_UPDATES?" in warning
        told = [json.loads(line) for line in events]
        assert told[0]["event"] == "next_server"
        pushes = [event for event in told if event["event"] == "push"]
        assert [push["local_lr"] for push in pushes] == [0.25, 0.25]
        assert server.stop() == 0
    finally:
        if server.running:
            server.kill()


PAGE = Path(__file__).parents[2] / "docs" / "operate.md"


def section(heading):
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    return {
        kind: re.findall(rf"^```{kind}\n(.*?)^```", found[1], re.M | re.S)
        for kind in ("sh", "toml", "text")
    }


def found(text):
    return re.findall(r"^(ok|warning|failed) +(\w+)", text, re.M)


def test_the_page_shows_what_its_commands_print(tmp_path, anarchic, monkeypatch):
    files, looks = section("Settings file"), section("Check before you leave it alone")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("ANARCHIC_PORT", str(free_port()))
    monkeypatch.setenv("ANARCHIC_SERVER", f"http://127.0.0.1:{os.environ['ANARCHIC_PORT']}")
    for name, text in zip(("server", "worker"), files["toml"], strict=True):
        (tmp_path / f"{name}.toml").write_text(text)
    anarchic("init", "--model", "logistic", "--out", "model.safetensors")
    serve, work, as_json = (line.split("#")[0].split()[1:] for line in commands(looks))
    assert found(anarchic(*serve).output) == found(looks["text"][0])
    anarchic("token", "add", "ann", "--store", "run.db", "--out", "ann.token")
    for line in commands(files):
        words = line.split("#")[0].split(">")[0].split()[1:]
        if words[0] == "config":
            assert anarchic(*words).exit_code == 0
    with Configured(tmp_path / "server.toml", int(os.environ["ANARCHIC_PORT"])):
        assert found(anarchic(*work).output) == found(looks["text"][1])
        assert json.loads(anarchic(*as_json).output)["ready"]


def commands(blocks):
    return [line for block in blocks["sh"] for line in block.splitlines()]
