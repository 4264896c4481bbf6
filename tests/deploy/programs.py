"""The programs that deploy/ is written for: real ones, from Debian's packages."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests import waiting

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PACKAGES = {
    "nginx": "nginx-light",
    "caddy": "caddy",
    "openssl": "openssl",
    "curl": "curl",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
    "systemd-nspawn": "systemd-container",
    "psql": "postgresql-client",
    "docker-compose": "docker-compose",
    "buildah": "buildah",
}

# Programs start, and scrape, slowly on a machine that does other things too.
until = partial(waiting.until, timeout_s=120.0)


def needs(*programs: str) -> None:
    """Skip a test whose programs are missing, and say which Debian package has them."""
    for program in programs:
        if found(program) is None:
            pytest.skip(f"no {program}: install Debian's package {PACKAGES[program]}")


def found(program: str) -> str | None:
    """Where a program is; some are where only root looks for them."""
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def changed(text: str, values: Mapping[str, object]) -> str:
    """A file with other values in place of its examples, all of which it must have."""
    for example, value in values.items():
        assert example in text, f"the file no longer has {example}"
        text = text.replace(example, str(value))
    return text


def anarchic() -> str:
    """The command of the environment that runs the tests."""
    return str(Path(sys.executable).with_name("anarchic"))


@contextmanager
def running(command: list[str], log: Path, port: int, **named: object) -> Iterator[int]:
    """A program that listens on a port, and is stopped afterwards."""
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, **named)
    try:
        until(lambda: process.poll() is not None or answers(port))
        assert process.poll() is None, log.read_text()[-2000:]
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
