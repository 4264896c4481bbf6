"""The live servers of all under the same load, in turns: updates per second of a 4 MB model.

Two workers pull the model and hand back an update at once, over loopback, again and again. Every
contestant takes the updates by its own rule, with its own client, as it is shipped; ours makes
every one durable before it says so, the others keep nothing. Peers live in environments of their
own (``make bench-peers``); one that cannot run is noted with its reason, and stops nobody.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.peers.environments import last_line, missing
from benchmarks.record import Record
from benchmarks.workloads import PLACE

ROOT = Path(__file__).parents[2]
GROUP = "4 MB updates, 2 workers"
OURS = "anarchic"
REPEATS = 3
READY_S, ANSWER_S = 120.0, 120.0  # the longest silence at the start, and beyond the end of a turn
WARM_S = 1.0
MARK = "BENCHMARK_RUN"  # in the environment of all that a contestant starts


@dataclass(frozen=True)
class Contestant:
    """``seconds`` of a turn have to be enough for some updates of the slow."""

    name: str
    module: str
    seconds: float
    environment: str = ""  # its name under .bench; empty: our own
    arguments: tuple[str, ...] = ()

    def command(self, folder: Path) -> list[str]:
        python = sys.executable
        if self.environment:
            python = str(PLACE / self.environment / "bin" / "python")
        return [python, "-m", f"benchmarks.peers.{self.module}", str(folder), *self.arguments]


CONTESTANTS = (
    Contestant(OURS, "load_ours", 3.0),
    Contestant("Flower", "load_flower", 8.0, "flower"),
    Contestant("Flower, server alone", "load_flower_alone", 4.0, "flower"),
    Contestant("APPFL", "load_appfl", 8.0, "appfl"),
    Contestant("APPFL, optimize_memory=False", "load_appfl", 4.0, "appfl", ("lean",)),
)


class Failed(Exception):
    """A contestant cannot go on, and why."""


class Session:
    """A contestant that runs, idle between its turns."""

    def __init__(self, contestant: Contestant) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = tempfile.TemporaryDirectory(
            dir=os.environ.get("BENCH_DIR"), ignore_cleanup_errors=True
        )
        self.log = Path(self.folder.name) / "contestant.log"
        paths = [str(ROOT)]
        if not contestant.environment:
            paths.append(os.environ.get("PYTHONPATH", ""))
        variables = {
            "PYTHONPATH": os.pathsep.join(paths),
            "TMPDIR": self.folder.name,
            MARK: self.mark,
        }
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                contestant.command(Path(self.folder.name)),
                cwd=ROOT,
                env={**os.environ, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self.process.stdin
        assert self.process.stdout
        self.asks: IO[str] = self.process.stdin
        self.answers: IO[str] = self.process.stdout

    def answer(self, patience_s: float) -> dict[str, Any]:
        if not select.select([self.answers], [], [], patience_s)[0]:
            raise Failed(f"it said nothing for {patience_s:.0f} s")
        line = self.answers.readline()
        if not line:
            raise Failed(last_line(self.log.read_text(encoding="utf-8", errors="replace")))
        said: dict[str, Any] = json.loads(line)
        return said

    def turn(self, seconds: float) -> float:
        """Updates per second."""
        with suppress(BrokenPipeError):  # it has ended: its answer says why
            self.asks.write(f"{seconds}\n")
            self.asks.flush()
        rate: float = self.answer(seconds + ANSWER_S)["rate"]
        if not rate:
            raise Failed("no update was accepted in a turn")
        return rate

    def close(self) -> None:
        """End it at once: nothing of it is needed any more."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        end_all(self.mark)
        self.process.wait()
        with suppress(BrokenPipeError):
            self.asks.close()
        self.answers.close()
        self.folder.cleanup()


@dataclass
class Found:
    """What the turns of one contestant gave, or why there is nothing."""

    rates: list[float] = field(default_factory=list)
    why_not: str = ""

    @contextmanager
    def noting(self, session: Session) -> Iterator[None]:
        """What goes wrong stays with the contestant, which does not go on beside the others."""
        try:
            yield
        except (Failed, OSError, ValueError) as error:
            self.why_not = str(error)
            session.close()


def race(record: Record, contestants: tuple[Contestant, ...] = CONTESTANTS) -> None:
    """Have all take turns, and keep what was found."""
    found = {c: Found(why_not=missing(c.environment) if c.environment else "") for c in contestants}
    with ExitStack() as stack:
        sessions: dict[Contestant, Session] = {}
        for contestant in [c for c, its in found.items() if not its.why_not]:
            try:
                sessions[contestant] = stack.enter_context(closing(Session(contestant)))
            except OSError as error:
                found[contestant].why_not = str(error)
        for contestant, session in sessions.items():
            with found[contestant].noting(session):
                record.versions.update(session.answer(READY_S)["versions"])
                session.turn(WARM_S)
        for contestant, session in list(sessions.items()) * REPEATS:
            its = found[contestant]
            if not its.why_not:
                with its.noting(session):
                    its.rates.append(once(session, contestant))
    note(record, found)


def once(session: Session, contestant: Contestant) -> float:
    rate = session.turn(contestant.seconds)
    print(f"{GROUP}, {contestant.name}: {rate:.3g} per second", flush=True)
    return rate


def note(record: Record, found: dict[Contestant, Found]) -> None:
    """Write what was found into the record; ours has to be faster than every peer."""
    medians: dict[str, float] = {}
    for contestant, its in found.items():
        group = f"{GROUP}, {contestant.name}"
        if its.why_not:
            record.absent[group] = its.why_not
        else:
            medians[contestant.name] = record.measure(
                "answered", its.rates, unit="1/s", group=group
            )
    ours = medians.pop(OURS, None)
    for name, rate in medians.items():
        times = ours / rate if ours else None
        record.ratio(f"{OURS} is faster by", times, group=f"{GROUP}, {name}")
    fastest = max(medians.values(), default=None)
    times = ours / fastest if ours and fastest else None
    record.ratio(f"{GROUP}: {OURS} / fastest peer", times, least=1.0)


def end_all(mark: str) -> None:
    """End all that carries the mark: some peers start processes in sessions of their own."""
    for _ in range(3):  # what is started meanwhile too
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if f"{MARK}={mark}".encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)
        time.sleep(0.05)
