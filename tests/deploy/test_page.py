"""The commands of docs/deploy.md, as they stand there, from an empty folder to a monitored run.

Blocks marked ``bash`` are run in their order by one shell, with real nginx, PostgreSQL, Prometheus
and openssl. Blocks marked ``sh`` are not: the page says what else was tried.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote

import pytest

from tests.chaos.servers import free_port
from tests.deploy.programs import ROOT, answers, needs, until
from tests.server.postgres import PostgresServer, postgres_server

PAGE = ROOT / "docs" / "deploy.md"
STOP = "### Stop everything"
UPDATES = 24 + 24 + 8  # that the workers of the page send
STEP = 4


def blocks(text: str) -> str:
    return "\n".join(re.findall(r"```bash\n(.*?)```", text, re.S))


@dataclass(frozen=True)
class Machine:
    """What stands for an empty machine: a folder, free ports, and a database that is running."""

    root: Path
    database: PostgresServer
    ports: dict[str, int] = field(
        default_factory=lambda: {name: free_port() for name in ("HTTPS", "A", "B", "MONITOR")}
    )
    groups: list[int] = field(default_factory=list)  # of processes that it has started

    def run(self, script: str) -> int:
        """As a reader does who stops at the first error."""
        home = self.database.home
        environment = {
            "HOME": str(self.root),
            "PATH": f"{self.database.programs}:/usr/local/bin:/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
            "PIP_NO_COMPILE": "1",  # what is imported is compiled then, and no more
            "PYTHON": sys.executable,
            "ROOT": str(self.root),
            "NAME": "localhost",
            "DATABASE": str(home),
            "PSQL": f"psql --host={home} --username=postgres",
            **{name: str(port) for name, port in self.ports.items()},
            **{name: text for name, text in os.environ.items() if name.startswith("PIP_")},
        }
        with (self.root / "out").open("ab") as out:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        self.groups.append(process.pid)
        return process.wait(900)

    def log(self, name: str = "") -> str:
        path = self.root / "var" / "log" / "anarchic" / name if name else self.root / "out"
        return path.read_text() if path.exists() else ""

    def get(self, path: str, worker: str | None) -> tuple[int, dict[str, object]]:
        """What nginx answers to somebody with this worker's certificate, or without."""
        tls = self.root / "etc" / "anarchic" / "tls"
        context = ssl.create_default_context(cafile=tls / "ca.pem")
        if worker is not None:
            context.load_cert_chain(tls / f"{worker}.pem", tls / f"{worker}-key.pem")
        url = f"https://localhost:{self.ports['HTTPS']}{path}"
        try:
            with urllib.request.urlopen(url, timeout=20, context=context) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, {}

    def measured(self, query: str) -> float:
        """What Prometheus knows."""
        url = f"http://127.0.0.1:{self.ports['MONITOR']}/api/v1/query?query={quote(query)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            result = json.load(answer)["data"]["result"]
        return float(result[0]["value"][1]) if result else float("nan")

    def stored(self, statement: str) -> str:
        return self.database.sql(statement, "anarchic")


@pytest.fixture
def machine() -> Iterator[Machine]:
    needs("nginx", "prometheus", "promtool", "openssl", "curl", "psql")
    with postgres_server() as database:
        asks_for_passwords(database)
        with folder() as root:
            made = Machine(root, database)
            try:
                yield made
            finally:
                end_what_is_left(made)


@contextmanager
def folder() -> Iterator[Path]:
    """Not in pytest's own directory: nginx works as another user."""
    root = Path(tempfile.mkdtemp(prefix="anarchic-page-"))
    root.chmod(0o755)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def end_what_is_left(machine: Machine) -> None:
    """After a failure. nginx has left the group of the shell that started it."""
    for group in machine.groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    with suppress(OSError, ValueError):
        os.kill(
            int((machine.root / "var/lib/anarchic/nginx/nginx.pid").read_text()), signal.SIGTERM
        )


def asks_for_passwords(database: PostgresServer) -> None:
    """From all but its administrator, as on a real machine."""
    rules = database.home / "data" / "pg_hba.conf"
    rules.write_text("local all postgres trust\nlocal all all scram-sha-256\n")
    assert database.sql("SELECT pg_reload_conf()") == "t"


@pytest.mark.slow
def test_the_commands_of_the_page_lead_to_a_monitored_run(machine):
    start, _, stop = PAGE.read_text().partition(STOP)
    assert machine.run(blocks(start)) == 0, machine.log()[-4000:]

    # Every update that a worker sent counts once, though a server was killed between them.
    assert machine.stored("SELECT count(*) FROM updates") == str(UPDATES)
    until(lambda: machine.get("/v1/status", "ann")[1]["version"] == UPDATES // STEP)
    # Both servers have served, and who asked is in nginx's log.
    served = machine.log("anarchic.log")
    for name in ("A", "B"):
        assert f"to=127.0.0.1:{machine.ports[name]}" in served
    assert '127.0.0.1 "CN=ben" "POST /v1/updates' in served
    # Nobody without a certificate, and no operators' path.
    assert machine.get("/v1/status", None)[0] == 400
    assert machine.get("/metrics", "ann")[0] == 404
    # Prometheus sees both, and the alerts are loaded.
    until(lambda: machine.measured('sum(up{job="anarchic"})') == 2)
    until(lambda: machine.measured("max(anarchic_version)") == UPDATES // STEP)
    # No secret is in a log, nor readable for others.
    etc = machine.root / "etc" / "anarchic"
    secrets = [(etc / name).read_text().strip() for name in ("ann.token", "ben.token")]
    secrets.append((etc / "pgpass").read_text().strip().rpartition(":")[2])
    logs = machine.log() + "".join(
        path.read_text() for path in (machine.root / "var" / "log" / "anarchic").iterdir()
    )
    assert not [secret for secret in secrets if secret in logs]
    private = ["pgpass", "ann.token", "ben.token", "tls/ca-key.pem", "tls/key.pem"]
    assert {(etc / name).stat().st_mode & 0o077 for name in private} == {0}

    begin = start[: start.index("### The program")]
    assert machine.run(blocks(begin) + blocks(stop)) == 0, machine.log()[-2000:]
    until(lambda: not any(map(answers, machine.ports.values())))
    for name in ("A", "B"):
        log = f"server-{machine.ports[name]}.log"
        until(lambda: '"event": "stopped"' in machine.log(log))  # noqa: B023


def test_a_command_that_fails_ends_the_page(tmp_path):
    """Or a page that does not work would pass."""
    script = blocks("```bash\nfalse\n```\n```bash\ntouch here\n```")
    command = ["bash", "-euo", "pipefail", "-c", script]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 1
    assert not (tmp_path / "here").exists()


def test_every_block_says_whether_it_is_run():
    kinds = set(re.findall(r"^```(\w*)\n", PAGE.read_text(), re.M))
    assert kinds - {""} <= {"bash", "sh", "text"}
