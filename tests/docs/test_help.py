"""Every example of every command's help runs, as it stands there, on a run that is being served.

``tests/cli/test_app.py`` runs those of the commands in its GROUPS; here are the others, in an order
in which each finds what it needs. An address in an example becomes that of the server.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anarchic.cli import app
from tests.chaos.servers import ServerProcess, free_port
from tests.cli.test_app import COMMANDS, GROUPS
from tests.docs.blocks import environment
from tests.waiting import until

pytest.importorskip("torch")

# In this order; those that change the run for good come last.
ORDER = (
    *("rules", "init", "config show", "work", "status", "replay", "export", "view", "report"),
    *("pause", "resume", "set", "rollback", "log", "store backup", "store check", "store upgrade"),
    *("token add", "token list", "token rotate", "token export", "token import", "token revoke"),
    *("run create", "run list", "run end", "serve", "end"),
)
ELSEWHERE = {  # the beginning of a line, and why it is not run here
    "anarchic init --flower": "tests/bridges/test_flower.py",
    "anarchic work --server http://127.0.0.1:8780 --flower": "tests/bridges/test_flower.py",
    "anarchic status postgresql://": "tests/cli/test_status.py, on a store in PostgreSQL",
    "anarchic status https://example.org --run": "tests/cli/test_status.py, on several runs",
    "anarchic demo --live": "tests/demo/test_live.py",
    "anarchic demo": "tests/cli/test_app.py, on the page of commands",
    "anarchic reproduce table-1 --task": "it takes minutes: tests/experiments/test_smoke.py",
    "anarchic simulate --rule my_module:MyRule": "docs/tutorials/new_rule.md",
    "anarchic simulate": "tests/cli/test_app.py",
    "anarchic store compact run.db --before 100000": "tests/cli/test_store.py, below version 3",
    "anarchic reproduce": "tests/experiments",
    "anarchic view postgresql://": "tests/server/test_picture.py, on a store in PostgreSQL",
}
LASTING = (  # these go on until they are told to stop
    ("serve", signal.SIGTERM),
    ("work --server https://example.org --task my_tasks:task --token-file ann.token --policy",
     signal.SIGTERM),
    ("work --config", signal.SIGTERM),
    ("status run.db --watch", signal.SIGINT),
    ("view", signal.SIGINT),
)  # fmt: skip
FILES = {
    "server.toml": 'store = "run.db"\n',
    "worker.toml": 'task = "digits:1/8"\ntoken_file = "ann.token"\npolicy = "random:60"\n',
    "my_module.py": """
import numpy as np
from torch import nn
class Model(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
class ResNet(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 2), nn.BatchNorm1d(2))
def judge(snapshot):
    return {"accuracy": float(np.tanh(snapshot.version))}
""",
    "my_tasks.py": "from anarchic.worker import digits_task\ntask = digits_task('digits:1/8')\n",
}


def examples(command: str) -> list[str]:
    lines = (line.strip() for line in COMMANDS[command].epilog.splitlines())
    return [line for line in lines if line.startswith("anarchic ")]


def left_out(line: str) -> bool:
    return any(line.startswith(beginning) for beginning in ELSEWHERE)


def test_no_command_is_forgotten():
    tested = {*ORDER, *(command for group in GROUPS for command in group)}
    tested |= {command for command in COMMANDS if all(map(left_out, examples(command)))}
    assert tested == set(COMMANDS)
    every = [line for command in COMMANDS for line in examples(command)]
    for beginning in ELSEWHERE:
        assert any(line.startswith(beginning) for line in every), beginning


class Shop:
    """A folder with what a user brings, and a server of the run in it."""

    def __init__(self, folder: Path, server: ServerProcess) -> None:
        self.folder, self.server = folder, server

    def words(self, line: str) -> list[str]:
        url = f"http://127.0.0.1:{self.server.port}"
        line = re.sub(r"https://example\.org|http://127\.0\.0\.1:8780", url, line)
        return shlex.split(line, comments=True)[1:]

    def run(self, line: str) -> None:
        words, out = self.words(line), None
        if ">" in words:
            words, out = words[:-2], words[-1]
        end = next((how for start, how in LASTING if line.startswith(f"anarchic {start}")), None)
        if end is not None and "--check" not in words:
            return self.run_until(words, end)
        if words[0] == "init":  # the examples are alternatives, and no model is written over
            (self.folder / words[words.index("--out") + 1]).unlink(missing_ok=True)
        shown = CliRunner().invoke(app, words, prog_name="anarchic")
        assert shown.exit_code == 0, (line, shown.output, shown.exception)
        if out is not None:
            (self.folder / out).write_text(shown.stdout, encoding="utf-8")
        return None

    def run_until(self, words: list[str], end: signal.Signals) -> None:
        """Start it, see that it goes on, and tell it to stop."""
        folder = self.folder
        if words[0] == "serve":
            words = [*words, "--port", str(free_port())]
        elif words[0] == "view":
            words = [str(free_port()) if word == "8790" else word for word in words]
        elif "--config" in words:
            words = [*words, "--server", f"http://127.0.0.1:{self.server.port}"]
        if "--init" in words:  # a run that begins
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            shutil.copy(self.folder / "first.safetensors", folder / "model.safetensors")
            CliRunner().invoke(app, ["token", "add", "ann", "--store", str(folder / "run.db")])
        log = self.folder / "lasting.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "anarchic", *words],
                cwd=folder, env={**environment(self.folder), "PYTHONUNBUFFERED": "1"},
                stdout=out, stderr=out,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip
        until(lambda: process.poll() is not None or self._goes_on(words, process.pid, log), 60)
        if process.poll() is None:
            process.send_signal(end)
        assert process.wait(60) in (0, 130), (words, log.read_text())

    def _goes_on(self, words: list[str], pid: int, log: Path) -> bool:
        """A server serves, a worker waits, and what shows something has shown it."""
        if words[0] == "work":
            return handles(pid, signal.SIGTERM)
        shown = {"serve": "serving", "view": "The page is at"}.get(words[0], "run")
        return shown in log.read_text()


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal."""
    caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    import torch
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("shop")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setenv("XDG_STATE_HOME", str(folder))
        for name, text in FILES.items():
            (folder / name).write_text(text)
        save_file({"lora_a": torch.ones(2), "base": torch.ones(3)}, folder / "state.safetensors")
        for words in (
            "simulate --rounds 5 --out runs/cd",
            "simulate --rounds 5 --rule afa-cs --out runs/cs",
            "init --model logistic --out first.safetensors",
            "token add carl --store run.db --out ann.token",  # ann comes without one
            "token add ops --store run.db --rights pull,operate --out operator.token",
        ):
            assert CliRunner().invoke(app, words.split()).exit_code == 0
        options = ("--m", "1", "--open-enrolment", "--keep-payloads")
        options += ("--evaluate", "my_module:judge", "--keep-every", "20")
        server = ServerProcess("run.db", Path("first.safetensors"), Path("log"), *options)
        with server:
            made = Shop(folder, server)
            for name in ("eve", "bob"):
                words = f"work --server x --task digits:3/8 --name {name} --updates 22"
                made.run(f"anarchic {words.replace('x', 'http://127.0.0.1:8780')}")
            yield made


@pytest.mark.slow
@pytest.mark.parametrize("command", ORDER)
def test_the_examples_of_a_command_run(shop: Shop, command: str):
    if command == "serve" and shop.server.running:
        shop.server.kill()
    for line in examples(command):
        if not left_out(line):
            shop.run(line)
