"""Who takes part in the bad day: honest workers, strangers, and a database with a small disk."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from anarchic import Update, wire
from tests.chaos.servers import ROOT

HONEST = 8  # workers, which share the data


def anarchic(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "NO_COLOR": "1"}
    environment |= {"COLUMNS": "110", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "anarchic", *words]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )


@dataclass
class Worker:
    """``anarchic work`` in a process, from its token to its summary."""

    name: str
    process: subprocess.Popen[str]

    @staticmethod
    def start(name: str, part: int, urls: str, folder: Path) -> Worker:
        words = ["--server", urls, "--task", f"digits:{part}/{HONEST}", "--spool", f"spool-{name}"]
        words += ["--token-file", f"{name}.token", "--local-lr", "0.1", "--local-steps", "5"]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "anarchic", "work", *words, "--policy", "every:0.005"]
        pipes = {"stdout": subprocess.PIPE, "text": True}
        with (folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(command, cwd=folder, env=environment, stderr=log, **pipes)
        return Worker(name, process)

    def ended(self) -> tuple[int, int]:
        """Exit status, and how many updates it was told are accepted."""
        said, _ = self.process.communicate(timeout=120)
        found = re.search(r"(\d+) updates accepted", said)
        return self.process.returncode, int(found.group(1)) if found else -1


class Stranger:
    """A worker with a token that does what it should not; it shares no code with ours."""

    def __init__(self, name: str, folder: Path, urls: list[str]) -> None:
        token = (folder / f"{name}.token").read_text().strip()
        self.name, self._urls = name, urls
        self._client = httpx.Client(headers={"authorization": f"Bearer {token}"}, timeout=10)
        self.answers: Counter[str] = Counter()

    def close(self) -> None:
        self._client.close()

    def push(self, id: str, direction: float, base: int | None = None, lr: float = 0.1) -> str:
        """Push an update to whichever server answers; the code of the answer."""
        for url in self._urls:
            with contextlib.suppress(httpx.HTTPError):
                layout, snapshot, _ = wire.decode_snapshot(
                    self._client.get(f"{url}/v1/model").content
                )
                drawn = np.random.default_rng(0).normal(size=layout.dim)
                vector = (direction * drawn).astype(np.float32)
                version = snapshot.version if base is None else base
                made = Update(self.name, version, 5, lr, vector, id=id)
                answer = self._client.post(
                    f"{url}/v1/updates", content=wire.encode_update(layout, made),
                    headers={"content-type": "application/octet-stream"},
                )  # fmt: skip
                code = "accepted" if answer.status_code == 202 else answer.json()["error"]
                self.answers[code] += 1
                return code
        return "unreachable"


@contextlib.contextmanager
def small_disk(megabytes: int) -> Iterator[Path | None]:
    """A file system of its own, for a database that is to run out of room; None without root."""
    folder = Path(tempfile.mkdtemp(prefix="anarchic-disk-"))
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True).returncode == 0
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)
        folder.rmdir()
