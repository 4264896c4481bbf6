"""Server processes that can be killed, and started again on the same store."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from anarchic import Layout, wire
from tests.chaos.talk import Unreachable, get_json

LAYOUT = Layout.of({"bias": ((10,), "F32"), "weight": ((10, 25), "F32")})
ROOT = Path(__file__).parents[2]
START_S = 60.0


def write_model(path: Path, layout: Layout = LAYOUT) -> Path:
    wire.save_model(path, layout, np.linspace(-1, 1, layout.dim).astype(np.float32))
    return path


def free_port() -> int:
    """Below the ports that the system gives to clients, or one of those might take it."""
    while True:
        port = random.SystemRandom().randrange(15_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class ServerProcess:
    """``anarchic serve`` on a port of its own; its log survives it."""

    def __init__(self, store: str, init: Path, log: Path, *options: str, port: int = 0) -> None:
        self.store, self.log, self.port = store, log, port or free_port()
        words = ["serve", "--store", store, "--init", str(init), "--port", str(self.port)]
        self._command = [sys.executable, "-m", "anarchic", *words, *options]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ServerProcess:
        self.start()
        self.await_ready()
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, under: tuple[str, ...] = ()) -> None:
        """``under`` is a command that runs the server, such as a tracer."""
        environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONFAULTHANDLER="1")
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*under, *self._command], stdout=log, stderr=log, env=environment
            )

    def await_ready(self, timeout_s: float = START_S) -> None:
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if not self.running:
                break
            with contextlib.suppress(Unreachable):
                status, _ = get_json(self.port, "/healthz", timeout_s=2.0)
                if status == 200:
                    return
            time.sleep(0.02)
        raise AssertionError(f"The server did not start:\n{self.text()[-3000:]}")

    def status(self) -> dict[str, object]:
        return get_json(self.port, "/v1/status")[1]

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait()

    def stop(self, timeout_s: float = 40.0) -> int:
        self.send(signal.SIGTERM)
        return self.wait(timeout_s)

    def send(self, what: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(what)

    def wait(self, timeout_s: float = 40.0) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def rss_mb(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")
