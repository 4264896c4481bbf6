"""The live server of two source trees under the same load, in turns: rates, and CPU per update.

    git worktree add ../before COMMIT
    python -m benchmarks.before_after ../before [--seconds 4] [--repeats 9] [--postgres]

Both servers run all the while and get the load in turns, so a disk or a machine that slows down
slows both. Of each turn and the one after it there is one ratio, and the median of these is told.
On a machine that others use too, only the CPU per update says something. The result is kept by the
name of the commit that was before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from tests.server.postgres import PostgresServer, postgres_server

from anarchic import Layout, wire
from benchmarks.many_runs import SIZES
from benchmarks.peers.load_turns import free_port, wait_for
from benchmarks.record import RESULTS, Record
from benchmarks.server import FREE, Server, Tally, cpu_s, push_for, temporary

HERE = Path(__file__).resolve().parent.parent
LEAST = 0.95  # of the rate before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="the other tree, with its folder src")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each turn")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--senders", type=int, default=32)
    parser.add_argument("--bodies", choices=SIZES, nargs="*", default=[*SIZES])
    parser.add_argument("--postgres", action="store_true", help="measure PostgreSQL too")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the result is kept")
    asked = parser.parse_args()
    if not (asked.before / "src" / "anarchic").is_dir():
        parser.error(f"{asked.before} has no src/anarchic: give a work tree of the project")
    name = commit(asked.before)
    record = Record(f"before {name}", f"The live server, beside that of commit {name}")
    for bodies in asked.bodies:
        compare(record, asked, f"{bodies}, SQLite", *SIZES[bodies])
    if asked.postgres:
        with postgres_server() as database:
            for bodies in asked.bodies:
                compare(record, asked, f"{bodies}, PostgreSQL", *SIZES[bodies], database)
    return record.finish(asked.out)


def compare(
    record: Record,
    asked: argparse.Namespace,
    group: str,
    dim: int,
    m: int,
    database: PostgresServer | None = None,
) -> None:
    """Medians of both trees, and of the ratios between turns that follow each other."""
    rates: dict[str, list[float]] = {"before": [], "now": []}
    costs: dict[str, list[float]] = {"before": [], "now": []}
    with ExitStack() as stack:
        trees = {"before": asked.before.resolve(), "now": HERE}
        servers = {
            name: stack.enter_context(serving_tree(tree, dim, m, database))
            for name, tree in trees.items()
        }
        for server in servers.values():  # warm, and into the steady state
            push_for(server, 2.0, senders=asked.senders, tally=Tally())
        for turn in range(asked.repeats):
            for name in ("before", "now") if turn % 2 else ("now", "before"):
                rate, cost = turn_of(servers[name], asked.seconds, asked.senders)
                rates[name].append(rate)
                costs[name].append(cost)
    for name in rates:
        record.measure(name, rates[name], unit="1/s", group=group)
    for name in costs:
        record.measure(f"CPU {name}", costs[name], unit="ms", better="lower", group=group)
    record.ratio("rate now / before", ratio(rates), group=group)
    record.bound(f"{group}: rate now / before", ratio(rates), least=LEAST)
    record.ratio("CPU now / before", ratio(costs), group=group)


def turn_of(server: Server, seconds: float, senders: int) -> tuple[float, float]:
    """Updates per second, and milliseconds of CPU per update."""
    before = cpu_s(server.process.pid)
    rate = push_for(server, seconds, senders=senders, tally=Tally())
    return rate, (cpu_s(server.process.pid) - before) / (rate * seconds) * 1e3


def ratio(found: dict[str, list[float]]) -> float:
    """Now by before, turn by turn: the median."""
    pairs = zip(found["before"], found["now"], strict=True)
    return statistics.median(now / before for before, now in pairs)


def commit(tree: Path) -> str:
    command = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def serving_tree(tree: Path, dim: int, m: int, database: PostgresServer | None) -> Iterator[Server]:
    """The server of a source tree, with the packages of this Python."""
    layout = Layout.of({"weight": ((dim,), "F32")})
    port = free_port()
    with temporary() as folder:
        wire.save_model(folder / "model.safetensors", layout, np.zeros(dim, np.float32))
        command = [sys.executable, "-m", "anarchic", "serve", "--open-enrolment", *FREE]
        store = str(folder / "run.db") if database is None else database.new_place()
        command += ["--init", str(folder / "model.safetensors"), "--store", store]
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
