"""A bad day in the life of a run, with real processes, and what the operator does about it.

    python -m tests.deploy.bad_day            # run it and print the page
    python -m tests.deploy.bad_day --write    # and put it into docs/operate.md

Eight honest workers and four bad ones, two servers, one PostgreSQL whose disk fills up. At the end
every update that a worker was told is accepted is in the trace once, and a replay gives the same
bytes.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from anarchic.data import load
from anarchic.models.softmax import lane_metrics
from anarchic.server.store import open_store
from tests.chaos.servers import ROOT, ServerProcess
from tests.deploy.day_workers import HONEST, Stranger, Worker, anarchic, small_disk
from tests.server.postgres import PostgresServer, postgres_server

PAGE = ROOT / "docs" / "operate.md"
BEGIN, END = "<!-- bad day: begin -->", "<!-- bad day: end -->"
M, LR = 4, "1"
DISK_MB = 300  # of the database
MOST_STALE = 20  # versions; more than an honest worker ever is here
LONGEST = 30  # lines of one output on the page


def judge(snapshot: object) -> dict[str, float]:
    """What ``serve --evaluate`` calls with every new version."""
    data = load("digits")
    x = data.x_test.reshape(len(data.x_test), -1)
    return lane_metrics(snapshot.params[None], x, data.y_test, 10)[0]  # type: ignore[attr-defined]


@dataclass
class Diary:
    """What was said, typed and answered, as Markdown."""

    store: str
    folder: Path
    parts: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.parts.append(textwrap.fill(" ".join(text.split()), 130) + "\n")
        sys.stdout.write(self.parts[-1] + "\n")

    def run(self, *words: str, expect: int = 0) -> str:
        """Type a command as an operator would."""
        done = anarchic(*words, cwd=self.folder)
        said = self.plain(done.stdout + done.stderr)
        typed = self.plain("anarchic " + " ".join(words))
        shown = said.splitlines()
        if len(shown) > LONGEST:
            shown = [*shown[: LONGEST - 1], "..."]
        self.parts.append("\n".join(["```text", f"$ {typed}", *shown, "```", ""]))
        sys.stdout.write(self.parts[-1] + "\n")
        assert done.returncode == expect, f"{typed} ended with {done.returncode}:\n{said}"
        return done.stdout

    def plain(self, text: str) -> str:
        text = text.replace(self.store, "$STORE").replace(f"{self.folder}/", "")
        return re.sub(r"http://127\.0\.0\.1:\d+", "http://server", text).rstrip()


def wait(what: str, true: Callable[[], bool], timeout_s: float = 180.0) -> None:
    until = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < until, f"after {timeout_s:.0f} s still not: {what}"
        time.sleep(0.1)


class BadDay:
    """The run, its servers and workers, and what happens to them."""

    def __init__(self, postgres: PostgresServer, disk: Path | None, folder: Path) -> None:
        self.postgres, self.disk, self.folder = postgres, disk, folder
        self.store = str(postgres.new_place())
        self.diary = Diary(self.store, folder)
        self.workers: list[Worker] = []
        self.servers: list[ServerProcess] = []
        self.strangers: dict[str, Stranger] = {}

    def run(self) -> str:
        try:
            self.begin()
            self.strangers_come()
            self.disk_fills()
            self.leader_dies()
            self.bad_version()
            self.operator_mends()
            self.end()
        except BaseException:
            for log in sorted(self.folder.glob("*.log")):
                sys.stdout.write(f"--- {log.name}\n{log.read_text()[-1500:]}\n")
            raise
        finally:
            for server in self.servers:
                if server.running:
                    server.kill()
            for worker in self.workers:
                if worker.process.poll() is None:
                    worker.process.kill()
                    worker.process.communicate()
            for stranger in self.strangers.values():
                stranger.close()
        return "\n".join(self.diary.parts)

    # The run

    def begin(self) -> None:
        say, run = self.diary.say, self.diary.run
        say("""Eight workers train, on two servers that share a PostgreSQL. The guard is off, so
            that one bad update can do harm; payloads are kept, so that it can be undone.""")
        names = [f"worker-{n}" for n in range(1, HONEST + 1)]
        for name in [*names, "huge", "nan", "late", "flood"]:
            made = anarchic("token", "add", name, "--store", self.store, cwd=self.folder)
            assert made.returncode == 0, made.stderr
            (self.folder / f"{name}.token").write_text(made.stdout.split()[-1] + "\n")
        run("init", "--model", "logistic", "--out", "model.safetensors")
        options = ("--m", str(M), "--server-lr", LR, "--guard", "0", "--keep-payloads")
        options += ("--evaluate", "tests.deploy.bad_day:judge", "--keep-best", "accuracy")
        options += ("--max-staleness", str(MOST_STALE), "--updates-per-minute", "600")
        self.servers += [
            ServerProcess(
                self.store, self.folder / "model.safetensors", self.folder / f"server-{n}.log",
                *options,
            )
            for n in (1, 2)
        ]  # fmt: skip
        for server in self.servers:
            server.start()
            server.await_ready()
        self.urls = [f"http://127.0.0.1:{server.port}" for server in self.servers]
        for part, name in enumerate(names, 1):
            both = self.urls if part % 2 else self.urls[::-1]
            self.workers.append(Worker.start(name, part, ",".join(both), self.folder))
        for name in ("huge", "nan", "late", "flood"):
            self.strangers[name] = Stranger(name, self.folder, self.urls)
        self.reach(12)
        run("status", self.store)

    def status(self) -> dict[str, object]:
        for server in self.servers:
            if server.running:
                with contextlib.suppress(Exception):
                    return server.status()
        return {}

    @property
    def version(self) -> int:
        return int(str(self.status().get("version", -1)))

    def reach(self, version: int, timeout_s: float = 180.0) -> None:
        wait(f"version {version}", lambda: self.version >= version, timeout_s)

    def accuracy(self) -> float:
        found = self.status().get("evaluation") or {}
        assert isinstance(found, dict)
        return float(found.get("accuracy", np.nan))

    # What goes wrong

    def strangers_come(self) -> None:
        self.reach(MOST_STALE + 2)
        codes = {
            "nan": self.strangers["nan"].push("1", float("nan")),
            "late": self.strangers["late"].push("1", 0.0, base=1),
        }
        assert codes == {"nan": "not_finite", "late": "stale"}
        flood = self.strangers["flood"]
        threads = [
            threading.Thread(target=lambda t=t: [flood.push(f"{t}-{n}", 1e-6) for n in range(40)])
            for t in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        before = self.version
        self.reach(before + 4)
        refused = {code: n for code, n in flood.answers.items() if code != "accepted"}
        assert refused, "nobody held the flood up"
        self.diary.say(f"""One worker sends NaN (refused: `{codes["nan"]}`), one builds on version
            1, which is more than {MOST_STALE} versions old (`{codes["late"]}`), one sends 160
            updates at once (told to wait: {
            ", ".join(f"{n} `{code}`" for code, n in sorted(refused.items()))
        }). The others go on.""")
        self.diary.run("status", self.store)

    def disk_fills(self) -> None:
        say = self.diary.say
        if self.disk is None:
            say("(Without the right to mount a small disk, the database is only restarted.)")
        else:
            ballast = self.disk / "ballast"
            with ballast.open("wb") as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1 << 20))
            wait("a server that says so", lambda: not all(map(self.well, self.servers)))
            say("""The disk of the database is full. Workers are told to come again later and keep
                what they have; `/healthz` of the servers answers 503 with a sentence.""")
            ballast.unlink()
        self.postgres.stop()
        time.sleep(1.0)
        self.postgres.start()
        before = self.version
        wait("servers that are well", lambda: all(map(self.well, self.servers)), 240)
        self.reach(max(before, self.version) + 3)
        say("There is room again, and the database was restarted. Nobody touched the servers.")

    def well(self, server: ServerProcess) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return (
                httpx.get(f"http://127.0.0.1:{server.port}/healthz", timeout=5).status_code == 200
            )
        return False

    def leader_dies(self) -> None:
        leader = next(s for s in self.servers if s.running and s.status()["leads"])
        leader.kill()
        before = self.version
        self.reach(before + 3)
        leader.start()
        leader.await_ready()
        self.diary.say("""The server that led is killed (`kill -9`). The other one takes over, and
            workers go to it; the first comes back and follows.""")

    def bad_version(self) -> None:
        wait("an accurate model", lambda: self.accuracy() > 0.85, 240)
        good = self.accuracy()
        assert self.strangers["huge"].push("1", 1e6, lr=1.0) == "accepted"
        wait("a bad evaluation", lambda: self.accuracy() < good - 0.2)
        self.diary.say(f"""One worker sends numbers of a million. Without a guard they count: the
            accuracy of the newest version falls from {good:.2f} to {self.accuracy():.2f}.""")
        self.diary.run("status", self.store)

    # What the operator does

    def operator_mends(self) -> None:
        say, run = self.diary.say, self.diary.run
        say("The operator stops the run and takes the worker's token.")
        run("pause", self.store)
        run("token", "revoke", "huge", "--store", self.store)
        spoilt = self.first_version_of("huge")
        told = "".join(server.text() for server in self.servers).splitlines()
        assert any('"event": "version"' in line and '"huge"' in line for line in told)
        say(f"""The log of the servers names version {spoilt} as the first with an update of huge
            (`who=huge:1`). What came later was computed on bad versions. So the operator goes back
            to version {spoilt}, without huge.""")
        run("rollback", self.store, "--without", "huge", "--to", str(spoilt))
        run("status", self.store)
        run("set", self.store, f"server_lr={0.5 * float(LR):g}")
        run("resume", self.store)
        wait("an accurate model again", lambda: self.accuracy() > 0.8, 240)
        before = self.version
        self.reach(before + 3)
        say(f"The accuracy is {self.accuracy():.2f} again, and steps are half as long from now on.")
        run("log", self.store)

    def first_version_of(self, worker: str) -> int:
        store = open_store(self.store, create=False)
        rows = [row.version for row in store.trace() if row.worker == worker and row.version]
        store.close()
        return int(min(rows))

    def end(self) -> None:
        say, run = self.diary.say, self.diary.run
        say("The best version goes to whoever asked for it. The run ends, and workers stop.")
        run(
            "export",
            self.store,
            "--version",
            "best",
            "--metric",
            "accuracy",
            "--out",
            "best.safetensors",
        )
        run("end", self.store)
        told = {worker.name: worker.ended() for worker in self.workers}
        assert {status for status, _ in told.values()} == {0}, told
        for server in self.servers:
            server.stop()
        run("store", "check", self.store)
        said = run("replay", self.store)
        self.check({name: accepted for name, (_, accepted) in told.items()})
        assert "equal" in said.lower() or "same" in said.lower(), said
        count = sum(accepted for _, accepted in told.values())
        say(f"""The workers were told of {count} accepted updates. All are in the trace, each
            once, and the replay gives the bytes of the last version.""")

    def check(self, promised: dict[str, int]) -> None:
        """Accepted means stored, once."""
        store = open_store(self.store, create=False)
        rows = list(store.trace())
        store.close()
        keys = Counter((row.worker, row.id) for row in rows)
        assert max(keys.values()) == 1, "an update was counted twice"
        found = Counter(row.worker for row in rows)
        for name, stranger in self.strangers.items():
            promised[name] = stranger.answers["accepted"]
        lost = {n: (told, found[n]) for n, told in promised.items() if found[n] != told}
        assert not lost, f"told and stored differ: {lost}"


def run() -> str:
    """The whole day; the page's section."""
    with small_disk(DISK_MB) as disk:
        if disk is not None:
            os.chmod(disk, 0o755)
        before = tempfile.tempdir
        tempfile.tempdir = None if disk is None else str(disk)
        try:
            with postgres_server() as postgres:
                tempfile.tempdir = before
                with tempfile.TemporaryDirectory(prefix="anarchic-day-") as folder:
                    return BadDay(postgres, disk, Path(folder)).run()
        finally:
            tempfile.tempdir = before


def main() -> None:
    section = run()
    if "--write" in sys.argv:
        page = PAGE.read_text(encoding="utf-8")
        first, _, rest = page.partition(BEGIN)
        _, _, last = rest.partition(END)
        PAGE.write_text(f"{first}{BEGIN}\n{section}\n{END}{last}", encoding="utf-8")


if __name__ == "__main__":
    main()
