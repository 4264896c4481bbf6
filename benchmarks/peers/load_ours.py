"""Ours under load: ``anarchic serve`` on SQLite, and two workers of the SDK, a process each.

    python -m benchmarks.peers.load_ours FOLDER

A step an update (m = 1), so that a new model is published, stored and pulled for every update: as
much as any peer does.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from anarchic.worker import Worker
from benchmarks.peers.load_turns import NUMBERS, WORKERS, Running, Turns, ended, lead
from benchmarks.server import serving

MOST_WAITING = (
    8  # updates that were accepted but are not in a model yet: more is not a steady state
)


def main(folder: Path) -> None:
    workers: list[Running] = []
    with serving(folder, NUMBERS, "--m", "1") as server, ended(workers):
        for number in range(WORKERS):
            command = [sys.executable, "-m", "benchmarks.peers.load_ours", str(folder)]
            command += [str(server.port), str(number)]
            workers.append(Running(command, folder / f"worker{number}.log"))
        lead(folder, WORKERS, workers, {})


def work(folder: Path, port: str, number: str) -> None:
    turns = Turns(folder)
    direction = np.random.default_rng(int(number)).standard_normal(NUMBERS, dtype=np.float32)
    with Worker(f"http://127.0.0.1:{port}", name=f"worker{number}") as worker:
        turns.arrive()
        while True:
            turns.wait()
            worker.pull()
            answer = worker.push(direction, local_lr=1e-6)
            if answer.buffered > MOST_WAITING:
                raise RuntimeError(f"{answer.buffered} updates wait for a step")
            turns.count(1)


if __name__ == "__main__":
    where, *rest = sys.argv[1:]
    if rest:
        work(Path(where), *rest)
    else:
        main(Path(where))
