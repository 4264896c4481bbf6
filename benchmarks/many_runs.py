"""Several runs on one server: the sum of their rates beside the rate of one run.

    python -m benchmarks.many_runs [--seconds 4] [--runs 10]
    python -m benchmarks.many_runs --postgres postgresql://... --bodies "40 KB" --idle

Both servers get the same traffic: as many senders in all, one connection each, bodies of the same
size. They take turns, so that a disk that slows down slows both. At the end stand the CPU and the
memory of a server whose runs are idle. With ``--postgres`` all runs are schemas of that database,
which must be empty at first; they stay there. Beside rates stands the CPU per update of the
server's process, which says something on a machine that others use too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from anarchic import Layout, wire
from anarchic.server.hosting import create_run
from benchmarks.peers.load_turns import free_port, wait_for
from benchmarks.server import FREE, LARGE, SMALL, Server, Tally, push_for, serving, temporary

SIZES = {"40 KB": (SMALL, 64), "4 MB": (LARGE, 8)}  # numbers in a model, and m


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="for each of the figures")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--senders", type=int, nargs="*", default=[40], help="in all")
    parser.add_argument("--bodies", choices=SIZES, nargs="*", default=[*SIZES])
    parser.add_argument("--postgres", metavar="URL", help="an empty database, in place of files")
    parser.add_argument("--idle", type=int, nargs="*", default=[1, 10, 100])
    asked = parser.parse_args()
    for senders in asked.senders:
        for name in asked.bodies:
            found = rates(asked, senders, *SIZES[name])
            print(json.dumps({"bodies": name, "senders": senders, **found}), flush=True)
    for runs in asked.idle:
        print(json.dumps({"idle runs": runs, **idle(runs)}))
    return 0


def rates(asked: argparse.Namespace, senders: int, dim: int, m: int) -> dict[str, object]:
    """The rate of one run, and the sum of the others', in turns."""
    one, many, cost_of_one, cost_of_many = [], [], [], []
    with (
        temporary() as folder,
        serving(folder, dim, "--m", str(m), store=asked.postgres) as alone,
        serving_runs(folder, dim, m, asked.runs, asked.postgres) as servers,
    ):
        push_together([alone], 1.0, senders)
        push_together(servers, 1.0, senders)
        for _ in range(asked.repeats):
            for each, found, cost in (([alone], one, cost_of_one), (servers, many, cost_of_many)):
                before = cpu_s(each[0].process.pid)
                rate = push_together(each, asked.seconds, senders)
                found.append(rate)
                cost.append((cpu_s(each[0].process.pid) - before) / (rate * asked.seconds) * 1e3)
    ratio = statistics.median(many) / statistics.median(one)
    costs = [round(statistics.median(cost), 3) for cost in (cost_of_one, cost_of_many)]
    return {"one": [round(r, 1) for r in one], "sum": [round(r, 1) for r in many],
            "ratio": round(ratio, 3), "CPU ms": costs}  # fmt: skip


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


def idle(runs: int, seconds: float = 10.0) -> dict[str, float]:
    """CPU per second, memory and threads of a server of which nobody asks anything."""
    with temporary() as folder, serving_runs(folder, SMALL, 64, runs) as servers:
        process = servers[0].process.pid
        time.sleep(3.0)
        before = cpu_s(process)
        time.sleep(seconds)
        status = Path(f"/proc/{process}/status").read_text()
        return {
            "cpu percent": round(100 * (cpu_s(process) - before) / seconds, 2),
            "MiB": round(int(status.split("VmRSS:")[1].split()[0]) / 1024),
            "threads": int(status.split("Threads:")[1].split()[0]),
        }


def cpu_s(process: int) -> float:
    words = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
