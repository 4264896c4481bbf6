"""Turns under load: when the workers of a contestant may go, and when updates were accepted.

A contestant keeps its server and its workers running between its turns, idle, so that starting
them is paid for once. It is told on its standard input how many seconds a turn has, and answers
each with a line of JSON. Its processes share a folder. Nothing here needs more than NumPy: peers
live in environments of their own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.environments import last_line

NUMBERS = 1_000_000  # in the model, of four bytes each
WORKERS = 2
PATIENCE_S = 90.0
Moment = tuple[float, int]  # when, and how many updates had been accepted since the last one


class Turns:
    """What is shared: until when the turn lasts, who is ready, and what was accepted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._counted = 0.0  # when this process last counted

    def arrive(self) -> None:
        """A worker is there, and waits for its first turn."""
        self._add("ready", "1")

    @property
    def on(self) -> bool:
        """Is it the contestant's turn?"""
        return time.monotonic() < self._until()

    def wait(self) -> None:
        """Come back within a turn. Whoever was idle when the last one ended says so."""
        while not self.on:
            if self._until() > self._counted:
                self.count(0)
            time.sleep(0.02)

    def count(self, updates: int) -> None:
        """So many were accepted, just now."""
        self._counted = time.monotonic()
        self._add("accepted", f"{self._counted} {updates}")

    def take(self, seconds: float, hands: int, processes: list[Running]) -> list[Moment]:
        """Have a turn, and wait for whoever is at work when it ends: ``hands`` of them.

        Moments are seconds since it began. An update that was begun in a turn counts in it.
        """
        before, began = len(self._lines("accepted")), time.monotonic()
        (self.folder / "until.part").write_text(str(began + seconds))
        os.replace(self.folder / "until.part", self.folder / "until")
        time.sleep(seconds)
        while True:
            lines = [line.split() for line in self._lines("accepted")[before:]]
            moments = [(float(when) - began, int(updates)) for when, updates in lines]
            if sum(when >= seconds for when, _ in moments) >= hands:
                return moments
            check(processes, began + seconds)
            time.sleep(0.05)

    def gather(self, hands: int, processes: list[Running]) -> None:
        began = time.monotonic()
        while len(self._lines("ready")) < hands:
            check(processes, began)
            time.sleep(0.05)

    def _until(self) -> float:
        lines = self._lines("until")
        return float(lines[0]) if lines else 0.0

    def _add(self, name: str, line: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(f"{line}\n")

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


def rate(moments: list[Moment]) -> float:
    """Updates per second, from the beginning of a turn until the last worker was done."""
    return sum(updates for _, updates in moments) / max(when for when, _ in moments)


class Running:
    """A process with its own log."""

    def __init__(self, command: list[str], log: Path, variables: dict[str, str] | None = None):
        self.log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, **(variables or {})},
            )

    def last_line(self) -> str:
        return last_line(self.log.read_text(encoding="utf-8", errors="replace"))

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def ended(processes: list[Running]) -> Iterator[None]:
    """End what was started, the last first, whatever happens."""
    try:
        yield
    finally:
        for running in reversed(processes):
            running.end()


def check(processes: list[Running], since: float) -> None:
    """Give up if one has ended, or if nothing has come for too long."""
    for running in processes:
        if running.process.poll() is not None:
            raise RuntimeError(f"{running.log.stem} ended: {running.last_line()}")
    if time.monotonic() - since > PATIENCE_S:
        raise RuntimeError(f"nothing came for {PATIENCE_S:.0f} s")


def lead(folder: Path, hands: int, processes: list[Running], versions: dict[str, str]) -> None:
    """Have a turn for every line of the standard input."""
    turns = Turns(folder)
    turns.gather(hands, processes)
    print(json.dumps({"versions": versions}), flush=True)
    for line in sys.stdin:
        moments = turns.take(float(line), hands, processes)
        print(json.dumps({"rate": rate(moments)}), flush=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("the server did not start")
