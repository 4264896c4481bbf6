"""Several runs on one server: the sum of their rates beside the rate of one run.

    python -m benchmarks.many_runs [--seconds 4] [--runs 10] [--postgres]

Both servers get the same traffic: as many senders in all, one connection each, bodies of the same
size. They take turns, so that a disk that slows down slows both. At the end stand the CPU and the
memory of a server whose runs are idle. With ``--postgres`` small bodies are measured in a private
PostgreSQL too, where each run is a schema. Beside rates stands the CPU per update of the server's
process, which says something on a machine that others use too. The result is kept as MANY RUNS.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tests.server.postgres import PostgresServer, postgres_server

from anarchic import Layout, wire
from anarchic.server.hosting import create_run
from benchmarks.peers.load_turns import free_port, wait_for
from benchmarks.record import RESULTS, Record
from benchmarks.server import FREE, LARGE, SMALL, Server, Tally, cpu_s, push_for, serving, temporary

SIZES = {"40 KB": (SMALL, 64), "4 MB": (LARGE, 8)}  # numbers in a model, and m
LEAST = 0.9  # of the rate of one run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="for each of the figures")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--senders", type=int, default=40, help="in all")
    parser.add_argument("--bodies", choices=SIZES, nargs="*", default=[*SIZES])
    parser.add_argument("--postgres", action="store_true", help="measure PostgreSQL too")
    parser.add_argument("--idle", type=int, nargs="*", default=[1, 10, 100])
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the result is kept")
    asked = parser.parse_args()
    record = Record("many_runs", f"MANY RUNS: {asked.runs} runs on one server, beside one run")
    for name in asked.bodies:
        rates(record, f"{name}, SQLite", asked, *SIZES[name])
    if asked.postgres:
        with postgres_server() as database:
            for place in ("one", "many"):
                database.sql(f"CREATE DATABASE {place}")
            rates(record, "40 KB, PostgreSQL", asked, *SIZES["40 KB"], database)
    for runs in asked.idle:
        idle(record, runs)
    return record.finish(asked.out)


def rates(
    record: Record,
    group: str,
    asked: argparse.Namespace,
    dim: int,
    m: int,
    database: PostgresServer | None = None,
) -> None:
    """The rate of one run, and the sum of the others', in turns."""
    found: dict[str, list[float]] = {"one run": [], "together": []}
    cost: dict[str, list[float]] = {"one run": [], "together": []}
    urls = [None, None] if database is None else [database.url("one"), database.url("many")]
    with (
        temporary() as folder,
        serving(folder, dim, "--m", str(m), store=urls[0]) as alone,
        serving_runs(folder, dim, m, asked.runs, urls[1]) as servers,
    ):
        turns = {"one run": [alone], "together": servers}
        for each in turns.values():
            push_together(each, 1.0, asked.senders)
        for _ in range(asked.repeats):
            for name, each in turns.items():
                before = cpu_s(each[0].process.pid)
                rate = push_together(each, asked.seconds, asked.senders)
                spent = cpu_s(each[0].process.pid) - before
                found[name].append(rate)
                cost[name].append(spent / (rate * asked.seconds) * 1e3)
    for name in turns:
        record.measure(name, found[name], unit="1/s", group=group)
    for name in turns:
        record.measure(f"CPU, {name}", cost[name], unit="ms", better="lower", group=group)
    ratio = statistics.median(found["together"]) / statistics.median(found["one run"])
    record.ratio("together / one run", ratio, group=group)
    record.bound(f"{group}: together / one run", ratio, least=LEAST)


def push_together(servers: list[Server], seconds: float, senders: int) -> float:
    """Updates per second in all runs, each with its part of the senders."""
    found: list[float] = []
    each = senders // len(servers)

    def push(server: Server) -> None:
        found.append(push_for(server, seconds, senders=each, tally=Tally()))

    threads = [threading.Thread(target=push, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(found)


@contextmanager
def serving_runs(
    folder: Path, dim: int, m: int, runs: int, database: str | None = None
) -> Iterator[list[Server]]:
    where = str(folder / "runs") if database is None else database
    layout = Layout.of({"weight": ((dim,), "F32")})
    init = folder / "model.safetensors"
    wire.save_model(init, layout, np.zeros(dim, np.float32))
    names = [f"run{number}" for number in range(runs)]
    for name in names:
        create_run(name, where, init, rules={"m": m})
    port = free_port()
    command = [sys.executable, "-m", "anarchic", "serve", "--open-enrolment", "--port", str(port)]
    command += ["--store", where, *FREE, *(["--runs"] if database is not None else [])]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield [Server(port, process, layout, f"/v1/runs/{name}/updates") for name in names]
    finally:
        process.terminate()
        process.wait(60)


def idle(record: Record, runs: int, seconds: float = 10.0) -> None:
    """CPU, memory and threads of a server of which nobody asks anything."""
    with temporary() as folder, serving_runs(folder, SMALL, 64, runs) as servers:
        process = servers[0].process.pid
        time.sleep(3.0)
        before = cpu_s(process)
        time.sleep(seconds)
        share = 100 * (cpu_s(process) - before) / seconds
        status = Path(f"/proc/{process}/status").read_text()
    group = f"idle runs: {runs}"
    memory = int(status.split("VmRSS:")[1].split()[0]) / 1024
    threads = float(status.split("Threads:")[1].split()[0])
    record.measure("CPU", [share], unit="% of a core", better="lower", group=group)
    record.measure("memory", [memory], unit="MiB", better="lower", group=group)
    record.measure("threads", [threads], unit="in all", better="lower", group=group)


if __name__ == "__main__":
    sys.exit(main())
