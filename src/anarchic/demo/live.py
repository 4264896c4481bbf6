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
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
import numpy as np

from anarchic import wire
from anarchic.core.types import Snapshot
from anarchic.data.digits import load_digits
from anarchic.demo import demo_directory
from anarchic.errors import RunError
from anarchic.server.access import add_token
from anarchic.server.replay import Replay, replay
from anarchic.server.store import open_store
from anarchic.worker import digits_task

WORKERS, M, SERVER_LR = 8, 4, 3.0
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
Watch = Callable[[float, dict[str, Any]], None]  # share of the time that has passed, status


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


def run_live(folder: Path, *, seconds: float, tell: Tell, watch: Watch) -> LiveResult:
    """Train for ``seconds``, kill workers and the server on the way, and count everything."""
    _prepare(folder)
    processes = _Processes(folder, tell)
    try:
        first_accuracy = processes.run(seconds, watch)
    finally:
        processes.stop()
    return processes.result(first_accuracy)


class _Processes:
    """A server and its workers, as processes of this machine."""

    def __init__(self, folder: Path, tell: Tell) -> None:
        self._folder, self._tell = folder, tell
        self._port = _free_port()
        self._url = f"http://127.0.0.1:{self._port}"
        self._server: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._logs: list[IO[bytes]] = []
        self._killed: Counter[str] = Counter()
        self._test = load_digits()

    def run(self, seconds: float, watch: Watch) -> float:
        """Start, kill and restart processes for ``seconds``; the accuracy of the first version."""
        self._start_server()
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
            seen = self._status()
            if seen is not None:
                watch(passed / seconds, seen)
            time.sleep(0.2)
        return first_accuracy

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
            accuracy=self._accuracy(wire.decode_snapshot(body)[1]),
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
        )  # fmt: skip
        until = time.monotonic() + START_S
        while self._status() is None:
            if self._server.poll() is not None or time.monotonic() > until:
                raise RunError(f"The server did not start; see {self._folder / 'server.log'}.")
            time.sleep(0.05)

    def _start_worker(self, index: int) -> subprocess.Popen[bytes]:
        policy, steps, rate = WORKER_OPTIONS[index]
        name = f"worker-{index + 1}"
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
        try:
            status: dict[str, Any] = httpx.get(f"{self._url}/v1/status", timeout=2).json()
            model = httpx.get(f"{self._url}/v1/model", headers=proof, timeout=2)
        except httpx.HTTPError:
            return None
        snapshot = wire.decode_snapshot(model.content)[1]
        return {**status, "accuracy": self._accuracy(snapshot)}

    def _accuracy(self, snapshot: Snapshot) -> float:
        """On the test digits, by softmax regression; the bias comes before the weight."""
        x = self._test.x_test.reshape(len(self._test.x_test), -1)
        classes = self._test.need_classes("The demo")
        weight = snapshot.params[classes:].reshape(classes, -1)
        right = (x @ weight.T + snapshot.params[:classes]).argmax(axis=1) == self._test.y_test
        return float(right.mean())


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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
