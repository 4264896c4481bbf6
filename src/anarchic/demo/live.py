"""The live demo: a real server and worker processes, some of which are killed on the way."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import httpx
import numpy as np

from anarchic import wire
from anarchic.demo import demo_directory
from anarchic.demo.judge import digits
from anarchic.errors import RunError
from anarchic.server.replay import Replay, replay
from anarchic.server.store import open_store
from anarchic.server.tokens import add_token
from anarchic.worker import digits_task

WORKERS, M, SERVER_LR = 8, 4, 3.0
JUDGE = "anarchic.demo.judge:digits"
OWN = ("model.safetensors*", "run.db*", "server.log", "worker-*")  # what an earlier demo wrote
# --policy, --local-steps and --local-lr of the eight workers.
WORKER_OPTIONS = (
    ("random:0.05", "5", "0.1"),
    ("random:0.05", "1-10", "0.1"),
    ("random:0.1", "5", "0.1"),
    ("random:0.1", "1-10", "0.2"),
    ("random:0.2", "10", "0.1"),
    ("random:0.3", "1-20", "0.05"),
    ("random:0.6", "20", "0.1"),
    ("random:1.2", "40", "0.05"),
)
# When these happen, as shares of the time.
KILL_WORKERS, RESTART_WORKERS, KILL_SERVER, RESTART_SERVER = 0.25, 0.4, 0.5, 0.55
KILLED_WORKERS = (0, 5)
START_S = 120.0  # time for nine processes to start at once on a slow machine

Tell = Callable[[str], None]
Look = Callable[[str | None], None]  # address of the live page; None: this server has none


@dataclass(frozen=True)
class Seen:
    """Where the run stands; what a server that is killed cannot tell is as it was before."""

    share: float  # of the time that has passed
    version: int = 0
    accuracy: float = 0.0
    workers: tuple[Mapping[str, Any], ...] = ()  # as `anarchic status --json` lists them
    server: bool = False  # whether it answers
    killed: tuple[str, ...] = ()  # workers that do not run now


Watch = Callable[[Seen], None]


@dataclass(frozen=True)
class LiveResult:
    """What the store, the workers' logs and the replay say afterwards."""

    accuracy: float
    first_accuracy: float
    version: int
    accepted: int  # updates whose workers got the answer "accepted"
    folded: int
    waiting: int
    refused: int
    lost: int  # answered "accepted", but not in the store
    doubled: int
    replay: Replay
    worker_kills: int
    server_kills: int

    @property
    def sound(self) -> bool:
        """Whether every accepted update counts exactly once, and the replay is equal."""
        return not self.lost and not self.doubled and self.replay.equal


def run_live(
    folder: Path, *, seconds: float, tell: Tell, watch: Watch, look: Look = lambda page: None
) -> LiveResult:
    """Train for ``seconds``, kill workers and the server on the way, and count everything.

    ``look`` is told the address of the live page as soon as the server is up. It stays the same
    when the server is killed and started again.
    """
    _prepare(folder)
    processes = _Processes(folder, tell)
    try:
        first_accuracy = processes.run(seconds, watch, look)
    finally:
        processes.stop()
    return processes.result(first_accuracy)


class _Processes:
    """A server and its workers, as processes of this machine."""

    def __init__(self, folder: Path, tell: Tell) -> None:
        self._folder, self._tell = folder, tell
        self._port, self._admin_port = _free_ports(2)
        self._url = f"http://127.0.0.1:{self._port}"
        self._admin = f"http://127.0.0.1:{self._admin_port}"  # where operators need no token
        self._seen = Seen(0.0)
        self._server: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._logs: list[IO[bytes]] = []
        self._killed: Counter[str] = Counter()

    def run(self, seconds: float, watch: Watch, look: Look) -> float:
        """Start, kill and restart processes for ``seconds``; the accuracy of the first version."""
        self._start_server()
        look(self._page())
        self._workers = [self._start_worker(index) for index in range(WORKERS)]
        first_accuracy = self._await_first_version()
        events = [
            (KILL_WORKERS, self._kill_workers),
            (RESTART_WORKERS, self._restart_workers),
            (KILL_SERVER, self._kill_server),
            (RESTART_SERVER, self._restart_server),
        ]
        start = time.monotonic()
        while (passed := time.monotonic() - start) < seconds:
            if events and passed >= events[0][0] * seconds:
                events.pop(0)[1]()
            watch(self._look(passed / seconds))
            time.sleep(0.2)
        return first_accuracy

    def _look(self, share: float) -> Seen:
        """Where the run stands now."""
        killed = tuple(
            name_of(i) for i, each in enumerate(self._workers) if each.poll() is not None
        )
        told, listed = self._status(), self._ask(f"{self._admin}/v1/workers?sort=worker")
        now = replace(self._seen, share=share, killed=killed, server=told is not None)
        if told is not None:
            now = replace(now, version=told["version"], accuracy=told["accuracy"])
        if listed is not None:
            now = replace(now, workers=tuple(listed.json()["workers"]))
        self._seen = now
        return now

    def _page(self) -> str | None:
        """The address of the live page, if this server has one."""
        page = f"{self._admin}/"
        found = self._ask(page)
        return None if found is None else page

    def _await_first_version(self) -> float:
        """Wait for all processes to start, which takes a while on a busy machine; its accuracy."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            seen = self._status()
            if seen is not None and seen["version"] > 0:
                accuracy: float = seen["accuracy"]
                return accuracy
            time.sleep(0.1)
        raise RunError(
            f"The workers made no version within {START_S:g} s: see the logs in {self._folder}; "
            "if the machine is busy, try again."
        )

    def stop(self) -> None:
        """End the workers first, so that they send or spool their last updates."""
        for process in self._workers:
            process.terminate()
        for process in self._workers:
            _ended(process)
        if self._server is not None:
            self._server.terminate()
            _ended(self._server)
        for log in self._logs:
            log.close()

    def result(self, first_accuracy: float) -> LiveResult:
        pushes = list(_pushes(self._folder))
        accepted = Counter(
            (p["worker"], p["id"]) for p in pushes if p["status"] in ("accepted", "duplicate")
        )
        with closing(open_store(self._folder / "run.db", keep_payloads=True)) as store:
            trace = list(store.trace())
            run = store.run()
            body = store.model(run.version) if run is not None else None
            if run is None or body is None:
                raise RunError("The server stored no run.")
            again = replay(store)
        stored = Counter((row.worker, row.id) for row in trace)
        orders = Counter(row.order for row in trace if row.order is not None)
        return LiveResult(
            accuracy=_accuracy(body),
            first_accuracy=first_accuracy,
            version=run.version,
            accepted=len(accepted),
            folded=orders.total(),
            waiting=len(trace) - orders.total(),
            refused=sum(p["status"] not in ("accepted", "duplicate", "spooled") for p in pushes),
            lost=sum(1 for key in accepted if stored[key] == 0),
            doubled=sum(n - 1 for n in (*stored.values(), *orders.values()) if n > 1),
            replay=again,
            worker_kills=self._killed["worker"],
            server_kills=self._killed["server"],
        )

    def _start_server(self) -> None:
        self._server = self._start(
            "server", "serve", "--init", self._path("model.safetensors"),
            "--store", self._path("run.db"), "--rule", "afa-cs", "--m", str(M),
            "--server-lr", str(SERVER_LR), "--port", str(self._port), "--keep-payloads",
            "--admin-port", str(self._admin_port), "--evaluate", JUDGE,
        )  # fmt: skip
        until = time.monotonic() + START_S
        while self._status() is None:
            if self._server.poll() is not None or time.monotonic() > until:
                raise RunError(f"The server did not start; see {self._folder / 'server.log'}.")
            time.sleep(0.05)

    def _start_worker(self, index: int) -> subprocess.Popen[bytes]:
        policy, steps, rate = WORKER_OPTIONS[index]
        name = name_of(index)
        return self._start(
            name, "work", "--server", self._url, "--task", f"digits:{index + 1}/{WORKERS}",
            "--token-file", self._path(f"{name}.token"), "--spool", self._path(f"{name}.spool"),
            "--policy", policy, "--local-steps", steps, "--local-lr", rate,
        )  # fmt: skip

    def _path(self, name: str) -> str:
        return str(self._folder / name)

    def _start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        log = open(self._folder / f"{name}.log", "ab")  # noqa: SIM115  # closed in stop()
        self._logs.append(log)
        return subprocess.Popen(
            [sys.executable, "-m", "anarchic", *command],
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def _kill_workers(self) -> None:
        for index in KILLED_WORKERS:
            _kill(self._workers[index])
        self._killed["worker"] += len(KILLED_WORKERS)
        names = " and ".join(str(index + 1) for index in KILLED_WORKERS)
        self._tell(f"Killed workers {names} (SIGKILL); the others go on.")

    def _restart_workers(self) -> None:
        for index in KILLED_WORKERS:
            self._workers[index] = self._start_worker(index)
        self._tell("Started them again; what they had finished waits in their spools.")

    def _kill_server(self) -> None:
        assert self._server is not None
        _kill(self._server)
        self._killed["server"] += 1
        self._tell("Killed the server (SIGKILL); workers keep what they finish.")

    def _restart_server(self) -> None:
        self._start_server()
        self._tell("Started it again on the same store; it goes on where it was.")

    def _status(self) -> dict[str, Any] | None:
        """The server's status, and the accuracy of its model; None while it does not answer."""
        token = (self._folder / "worker-1.token").read_text(encoding="utf-8").strip()
        proof = {"authorization": f"Bearer {token}"}
        status = self._ask(f"{self._url}/v1/status")
        model = self._ask(f"{self._url}/v1/model", proof)
        if status is None or model is None:
            return None
        return {**status.json(), "accuracy": _accuracy(model.content)}

    def _ask(self, url: str, headers: Mapping[str, str] | None = None) -> httpx.Response | None:
        """The server's answer; None if it gives none, or a refusal."""
        try:
            answer = httpx.get(url, headers=headers, timeout=2)
        except httpx.HTTPError:
            return None
        return answer if answer.is_success else None


def _accuracy(model: bytes) -> float:
    """Of a version as the server publishes it."""
    return digits(wire.decode_snapshot(model)[1])["accuracy"]


def _prepare(folder: Path) -> None:
    """A fresh directory with a first model, and a token for every worker in the store."""
    demo_directory(folder, OWN)
    task = digits_task(f"digits:1/{WORKERS}")
    first = np.zeros(task.layout.dim, np.float32)
    wire.save_model(folder / "model.safetensors", task.layout, first)
    for number in range(1, WORKERS + 1):
        path = folder / f"worker-{number}.token"
        path.touch(mode=0o600)
        token = add_token(folder / "run.db", f"worker-{number}")
        path.write_text(token + "\n", encoding="utf-8")


def _pushes(folder: Path) -> Iterator[dict[str, Any]]:
    """The pushes that workers logged; a line that a kill cut short is left out."""
    for path in sorted(folder.glob("worker-*.log")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):
                facts = json.loads(line)
                if facts.get("event") == "push":
                    yield facts


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def _ended(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        _kill(process)


def name_of(index: int) -> str:
    """The name of a worker by its place in ``WORKER_OPTIONS``."""
    return f"worker-{index + 1}"


def _free_ports(count: int) -> list[int]:
    """Different ones: each is held until all are found."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
