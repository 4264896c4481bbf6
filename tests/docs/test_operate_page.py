"""Every block of commands in docs/operate.md is run: here, or by the test that ``RUN_BY`` names.

The blocks here run line by line as they stand there, with a real server, on a run of six versions.
Only addresses, ports and the numbers of versions are replaced.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from anarchic.cli import app
from anarchic.server.store import open_store
from anarchic.server.tokens import add_token
from tests.chaos.servers import free_port, write_model
from tests.docs.blocks import ROOT, environment
from tests.server.live import serving, until
from tests.server.make import body
from tests.server.postgres import postgres_server
from tests.waiting import until as wait_until

PAGE = ROOT / "docs" / "operate.md"
BLOCK = re.compile(r"^```(?:ba)?sh\n(.*?)^```$", re.S | re.M)
HERE = "tests/docs/test_operate_page.py"
RUN_BY = {  # the first words of a block, and the test that runs it
    "anarchic token add ann": (
        "tests/cli/test_token.py", "test_the_commands_of_the_page_work_in_their_order"),
    "anarchic serve --store run.db --host 0.0.0.0": (HERE, "test_certificates_bound_to_names"),
    "anarchic status run.db": (HERE, "test_what_shows_a_run"),
    "anarchic serve --store run.db --log-format": (HERE, "test_what_shows_a_run"),
    "anarchic compare run.db": (HERE, "test_what_shows_a_run"),
    "anarchic serve --store run.db --init": (
        "tests/deploy/test_prometheus.py", "test_the_commands_of_the_page_work"),
    "anarchic token add prometheus": (
        "tests/deploy/test_prometheus.py", "test_the_commands_of_the_page_work"),
    "anarchic config example": (
        "tests/cli/test_configured.py", "test_the_page_shows_what_its_commands_print"),
    "anarchic serve --config server.toml --check": (
        "tests/cli/test_configured.py", "test_the_page_shows_what_its_commands_print"),
    "anarchic work --server https://a.example.org": (HERE, "test_several_servers"),
    "anarchic pause run.db": (
        "tests/cli/test_steering.py", "test_the_commands_of_the_page_run_as_they_stand_there"),
    "anarchic serve --store run.db --evaluate": (HERE, "test_what_is_kept"),
    "anarchic store backup": (
        "tests/cli/test_store.py", "test_the_commands_of_the_page_run_as_they_stand_there"),
    "anarchic init --model": (HERE, "test_several_runs"),
    "anarchic run create mnist --store runs --init model.safetensors --evaluate": (
        HERE, "test_several_runs"),
    "anarchic run create mnist --store postgresql": (HERE, "test_several_runs_in_postgresql"),
}  # fmt: skip


def block(beginning: str) -> list[str]:
    """The commands of one block."""
    [found] = [text for text in blocks() if text.startswith(beginning)]
    return [line for line in found.splitlines() if line]


def blocks() -> list[str]:
    return BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def test_every_block_is_run_by_a_test():
    """The longest of the beginnings counts."""
    used = set()
    for text in blocks():
        named = [beginning for beginning in RUN_BY if text.startswith(beginning)]
        assert named, f"no test runs this block; add one, and say so in RUN_BY:\n{text}"
        used.add(max(named, key=len))
    assert used == set(RUN_BY)
    for path, test in RUN_BY.values():
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), (path, test)
        text = (ROOT / path).read_text(encoding="utf-8")
        assert "operate.md" in text, path


class Running(NamedTuple):
    process: subprocess.Popen[bytes]
    log: Path


class Shop:
    """A folder in which commands are typed, and what they need."""

    def __init__(self, folder: Path, **places: str) -> None:
        self.folder, self.port = folder, free_port()
        self._places = places

    def type(self, line: str, *more: str, until: str = "") -> str:
        """Run one line; one that goes on is stopped once it has said ``until``."""
        for name, place in self._places.items():
            line = line.replace(name, place)
        words = [*shlex.split(line, comments=True)[1:], *more]
        if not until:
            shown = CliRunner().invoke(app, words, prog_name="anarchic")
            assert shown.exit_code == 0, (line, shown.output, shown.exception)
            return shown.output
        with self.started(words, until) as running:
            stop = signal.SIGINT if "--watch" in words else signal.SIGTERM
            running.process.send_signal(stop)
            assert running.process.wait(40) == 0, (line, running.log.read_text())
            return running.log.read_text()

    @contextmanager
    def started(self, words: list[str], until: str) -> Iterator[Running]:
        """A process that has said ``until``; it does not outlive the block."""
        log = self.folder / f"{uuid.uuid4().hex}.said"
        with log.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "anarchic", *words],
                cwd=self.folder, stdout=said, stderr=said, env=self.environment(),
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip
        try:
            wait_until(lambda: until in log.read_text() or process.poll() is not None)
            assert until in log.read_text(), (words, log.read_text())
            yield Running(process, log)
        finally:
            process.kill()
            process.wait()

    def environment(self) -> dict[str, str]:
        own = environment(self.folder)
        return {**own, "PYTHONPATH": f"{own['PYTHONPATH']}:{ROOT}", "PYTHONUNBUFFERED": "1"}

    def serve(self, line: str) -> str:
        return self.type(line, "--port", str(self.port), until="listening")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Where a run of six versions is in run.db, of which one is evaluated."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "judge.py").write_text(
        "def judge(snapshot):\n    return {'accuracy': snapshot.version / 100}\n"
    )

    async def train():
        async with serving("run.db", rules={"m": 1}) as (service, client):
            for number in range(6):
                sent = body("ann", str(number), base_version=number, seed=number, loss=1.0)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await until(lambda: service.published.newest.version == number + 1)  # noqa: B023

    asyncio.run(train())
    with closing(open_store("run.db")) as store:
        store.add_evaluation(5, {"accuracy": 0.9, "loss": 0.5})
    (tmp_path / "ann.token").write_text(add_token("run.db", "ann"))
    (tmp_path / "operator.token").write_text(add_token("run.db", "boss", rights="operate"))
    return Shop(tmp_path)


@pytest.mark.slow
def test_certificates_bound_to_names(shop):
    authority = pytest.importorskip("trustme").CA()
    own = authority.issue_cert("localhost")
    own.cert_chain_pems[0].write_to_path(shop.folder / "cert.pem")
    own.private_key_pem.write_to_path(shop.folder / "key.pem")
    authority.cert_pem.write_to_path(shop.folder / "ca.pem")
    [line] = block("anarchic serve --store run.db --host 0.0.0.0")
    shop.serve(line)


@pytest.mark.slow
def test_what_shows_a_run(shop):
    store, watch, sort, postgres, url, several = block("anarchic status run.db")
    assert "version    6" in shop.type(store)
    shop.type(watch, until="version    6")
    assert "ann" in shop.type(sort)
    with postgres_server() as database:
        place = database.new_place()
        shop.type("anarchic init --model logistic --out m.safetensors")
        add_token(place, "ann")
        shop.serve(f"anarchic serve --store '{place}' --init m.safetensors")
        other = Shop(shop.folder, **{"postgresql://localhost/run": f"'{place}'"})
        assert '"version": 0' in other.type(postgres)
    (shop.folder / "runs").mkdir()
    for where, line in (("run.db", url), ("runs", several)):
        words = ["serve", "--store", where, "--port", str(shop.port)]
        with shop.started(words, "listening"):
            asking = Shop(shop.folder, **{"https://example.org": f"http://127.0.0.1:{shop.port}"})
            assert "version    6" in asking.type(line)
            (shop.folder / "run.db").replace("runs/mnist.db") if where == "run.db" else None
    (shop.folder / "runs/mnist.db").replace("run.db")
    text, warning, debug = block("anarchic serve --store run.db --log-format")
    assert "INFO" in shop.serve(text)
    shop.type(warning, "--port", str(shop.port), "--check")  # it says nothing when all is well
    assert '"serving"' in shop.serve(debug)
    shop.type("anarchic simulate --rounds 2 --workers 4 --m 2 --out runs/simulated")
    [line] = block("anarchic compare run.db")
    shop.type(line)
    assert (shop.folder / "compare.png").is_file()


@pytest.mark.slow
def test_several_servers(shop):
    (shop.folder / "my_tasks.py").write_text(
        "import numpy as np\nfrom anarchic.worker import FunctionTask\n"
        "from tests.server.make import LAYOUT\n"
        "task = FunctionTask(LAYOUT, lambda x: (0 * x + 1, 0.5, 1))\n"
    )
    [line] = block("anarchic work --server https://a.example.org")
    words = ["serve", "--store", "run.db", "--port", str(shop.port)]
    with shop.started(words, "listening"):
        away, here = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{shop.port}"
        asking = Shop(shop.folder, **{"https://a.example.org": away, "https://b.example.org": here})
        told = asking.type(line, until='"event": "push"')
        assert "next_server" in told


@pytest.mark.slow
def test_what_is_kept(shop):
    *served, export, rollback = block("anarchic serve --store run.db --evaluate")
    for line in served:
        if "--target" not in line:  # which would end the run; tests/server/test_keeping.py
            shop.serve(line)
    assert "Version" in shop.type(export)
    assert "version 4 again" in shop.type(rollback.replace("4800", "4"))
    [target] = [line for line in served if "--target" in line]
    shop.serve(target)


@pytest.mark.slow
def test_several_runs(shop):
    init, create, *others = block("anarchic init --model")
    for line in (init, create, others[0], others[1].replace("ann.token", "mnist.token")):
        shop.type(line)
    serve, work, *later = others[2:]
    words = [*shlex.split(serve, comments=True)[1:], "--port", str(shop.port)]
    with shop.started(words, "listening"):
        here = {"http://127.0.0.1:8780": f"http://127.0.0.1:{shop.port}"}
        worker = Shop(shop.folder, **here, **{"ann.token": "mnist.token"})
        worker.type(work, until='"event": "push"')
        assert "mnist" in shop.type(later[0])
        for line in later[1:]:
            shop.type(line)
    first, second = block(
        "anarchic run create mnist --store runs --init model.safetensors --evaluate"
    )
    for line in (first, second):
        shop.type(line.replace("--store runs", "--store more"))
    assert "Ready." not in shop.type("anarchic run list more")


@pytest.mark.slow
def test_several_runs_in_postgresql(shop):
    write_model(shop.folder / "model.safetensors")
    create, token, serve = block("anarchic run create mnist --store postgresql")
    with postgres_server() as database:
        database.sql("CREATE DATABASE anarchic")
        url = database.url("anarchic")
        there = {
            "postgresql://user@host/anarchic?run=mnist": f"{url}&run=mnist",
            "postgresql://user@host/anarchic": f"'{url}'",
        }
        asking = Shop(shop.folder, **there)
        asking.type(create)
        asking.type(token)
        assert "serving_runs" in asking.type(serve, "--port", str(shop.port), until="listening")
