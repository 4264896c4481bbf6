"""The live server of two source trees under the same load, in turns: rates, and CPU per update.

    git worktree add ../before COMMIT
    python -m benchmarks.before_after ../before [--seconds 4] [--repeats 9]

Both servers run all the while and get the load in turns, so a disk or a machine that slows down
slows both. Of each turn and the one after it there is one ratio, and the median of these is told.
On a machine that others use too, only the CPU per update says something.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from anarchic import Layout, wire
from benchmarks.many_runs import SIZES, cpu_s
from benchmarks.peers.load_turns import free_port, wait_for
from benchmarks.server import FREE, Server, Tally, push_for, temporary

HERE = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="the other tree, with its folder src")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each turn")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--senders", type=int, default=32)
    parser.add_argument("--bodies", choices=SIZES, nargs="*", default=[*SIZES])
    asked = parser.parse_args()
    if not (asked.before / "src" / "anarchic").is_dir():
        parser.error(f"{asked.before} has no src/anarchic: give a work tree of the project")
    for bodies in asked.bodies:
        print(json.dumps({"bodies": bodies, **compare(asked, *SIZES[bodies])}), flush=True)
    return 0


def compare(asked: argparse.Namespace, dim: int, m: int) -> dict[str, object]:
    """Medians of both trees, and of the ratios between turns that follow each other."""
    rates: dict[str, list[float]] = {"before": [], "after": []}
    costs: dict[str, list[float]] = {"before": [], "after": []}
    with ExitStack() as stack:
        trees = {"before": asked.before.resolve(), "after": HERE}
        servers = {
            name: stack.enter_context(serving_tree(tree, dim, m)) for name, tree in trees.items()
        }
        for server in servers.values():  # warm, and into the steady state
            push_for(server, 2.0, senders=asked.senders, tally=Tally())
        for turn in range(asked.repeats):
            for name in ("before", "after") if turn % 2 else ("after", "before"):
                rate, cost = turn_of(servers[name], asked.seconds, asked.senders)
                rates[name].append(rate)
                costs[name].append(cost)
    told: dict[str, object] = {}
    for name in ("before", "after"):
        told |= {f"{name}, 1/s": round(statistics.median(rates[name]), 1)}
        told |= {f"{name}, CPU ms": round(statistics.median(costs[name]), 4)}
    return told | {"rate ratio": ratio(rates), "CPU ratio": ratio(costs)}


def turn_of(server: Server, seconds: float, senders: int) -> tuple[float, float]:
    """Updates per second, and milliseconds of CPU per update."""
    before = cpu_s(server.process.pid)
    rate = push_for(server, seconds, senders=senders, tally=Tally())
    return rate, (cpu_s(server.process.pid) - before) / (rate * seconds) * 1e3


def ratio(found: dict[str, list[float]]) -> dict[str, float]:
    """After by before, turn by turn: the median, and the quartiles."""
    each = [after / before for before, after in zip(found["before"], found["after"], strict=True)]
    low, middle, high = statistics.quantiles(each, n=4)
    return {"median": round(middle, 3), "low": round(low, 3), "high": round(high, 3)}


@contextmanager
def serving_tree(tree: Path, dim: int, m: int) -> Iterator[Server]:
    """The server of a source tree, with the packages of this Python."""
    layout = Layout.of({"weight": ((dim,), "F32")})
    port = free_port()
    with temporary() as folder:
        wire.save_model(folder / "model.safetensors", layout, np.zeros(dim, np.float32))
        command = [sys.executable, "-m", "anarchic", "serve", "--open-enrolment", *FREE]
        command += ["--init", str(folder / "model.safetensors"), "--store", str(folder / "run.db")]
        process = subprocess.Popen(
            [*command, "--port", str(port), "--m", str(m)],
            env=os.environ | {"PYTHONPATH": str(tree / "src")},
            cwd=folder,  # a tree in the working directory would be imported first
            stderr=(folder / "log").open("wb"),
        )
        try:
            wait_for(port)
            yield Server(port, process, layout)
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    sys.exit(main())
