"""A real server process, and a crowd of workers: honest, stale, huge, lossy and refused ones."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random

import httpx
import numpy as np

from anarchic import wire
from anarchic.core.types import Update
from anarchic.server.accounts import new_token, put_account
from anarchic.server.store import open_store
from anarchic.worker import digits_task

ROOT = Path(__file__).parents[2]
BYTES = {"content-type": "application/octet-stream"}
PATIENCE_S = 60.0
HONEST = ("ada", "bruno", "chidi", "dana", "emil", "farah", "goro", "hana", "ines", "jonas")
# Name: (idle seconds, local steps, what it does)
CROWD = {
    **{name: (0.15 + 0.12 * place, (1, 12), "honest") for place, name in enumerate(HONEST)},
    "kim-slow": (0.1, (5, 30), "stale"),
    "lena-late": (0.2, (5, 30), "stale"),
    "max-huge": (0.8, (5, 5), "huge"),
    "noor-leaves": (0.6, (5, 10), "lossy"),
    "otto-nan": (1.2, (5, 5), "refused"),
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """``anarchic serve`` as a process that can be killed and started again."""

    def __init__(self, folder: Path, *, m: int = 6, options: tuple[str, ...] = ()) -> None:
        self.folder, self.store = folder, folder / "run.db"
        self.port, self.admin = free_port(), free_port()
        self.url, self.page = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.admin}/"
        self._m, self._options = m, options
        self.process: subprocess.Popen[bytes] | None = None
        task = digits_task("digits:1/4")
        wire.save_model(folder / "model.safetensors", task.layout, task.init())

    def tokens(self, names, rights="pull,push") -> dict[str, str]:
        """Tokens for workers, put into the store before the server starts."""
        found = {}
        with closing(open_store(self.store)) as store:
            for name in names:
                found[name], account = new_token(name, rights=rights)
                put_account(store, account)
        return found

    def start(self) -> None:
        command = [
            sys.executable, "-m", "anarchic", "serve", "--store", str(self.store),
            "--m", str(self._m), "--init", str(self.folder / "model.safetensors"),
            "--port", str(self.port),
            "--admin-port", str(self.admin), "--server-lr", "2", "--rule", "afa-cd",
            "--evaluate", "anarchic.demo.judge:digits", "--updates-per-minute", "1000000",
            *self._options,
        ]  # fmt: skip
        log = open(self.folder / "server.log", "ab")  # noqa: SIM115  # the process has it
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=env)
        log.close()
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self.process.poll() is None:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.page}readyz", timeout=2).status_code == 200:
                    return
            time.sleep(0.1)
        raise RuntimeError((self.folder / "server.log").read_text())

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class Crowd:
    """Workers as threads, in plain HTTP, until they are told to stop."""

    def __init__(self, server: Server, tokens, *, pace: float = 1.0) -> None:
        self._server, self._tokens, self._pace = server, tokens, pace
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(name, place), daemon=True)
            for place, name in enumerate(CROWD)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(10)

    def _work(self, name: str, place: int) -> None:
        rng = Random(place)
        task = digits_task(f"digits:{place % 10 + 1}/10")
        with httpx.Client(base_url=self._server.url, timeout=10) as client:
            client.headers = {**BYTES, "authorization": f"Bearer {self._tokens[name]}"}
            while not self._end.is_set():
                with suppress(httpx.HTTPError, OSError):
                    self._visit(client, name, task, rng)
                self._end.wait(self._pace * rng.expovariate(1 / CROWD[name][0]))

    def _visit(self, client, name, task, rng) -> None:
        _, steps, kind = CROWD[name]
        pulled = client.get("/v1/model")
        if pulled.status_code != 200:
            return
        layout, snapshot, run = wire.decode_snapshot(pulled.content)
        K, lr = rng.randint(*steps), 0.1
        params, loss = snapshot.params.copy(), 0.0
        for _ in range(K):
            gradient, loss, _ = task.gradient(params)
            params -= lr * gradient
        self._end.wait(self._pace * K * (0.12 if kind == "stale" else 0.03))
        if kind == "lossy" and rng.random() < 0.5:
            return  # the update never comes
        direction = (snapshot.params - params) / (lr * K)
        if kind == "huge" and rng.random() < 0.3:
            direction = direction * 1e6  # the guard lets it count like an ordinary one
        if kind == "refused" and rng.random() < 0.7:
            direction = np.full_like(direction, np.nan)
        found = Update(name, snapshot.version, id=f"{rng.random():.17f}", local_steps=K,
                       local_lr=lr, direction=direction.astype(np.float32))  # fmt: skip
        body = wire.encode_update(layout, found, worker=None, run=run, loss=float(loss))
        client.post("/v1/updates", content=body)


@contextmanager
def serving(folder: Path, *, pace: float = 1.0, options: tuple[str, ...] = ()):
    """(server, operator's token) with a crowd at work."""
    server = Server(folder, options=options)
    tokens = server.tokens(CROWD)
    operator = server.tokens(["olga"], rights="operate")["olga"]
    server.start()
    try:
        with Crowd(server, tokens, pace=pace):
            yield server, operator
    finally:
        server.stop()
