"""Updates of 4 MB in PostgreSQL: how fast, and where the time goes.

    python -m benchmarks.postgres [--seconds 8]

A private PostgreSQL runs with its default settings. In turns: the disk alone, which is given the
same bytes; PostgreSQL alone, to which one client writes groups of eight bodies; the same with a
table that has no write-ahead log, so that each body is written once; and the whole server, with 32
senders and eight updates per step. Beside each rate stands what an update costs: CPU of whoever
talks to PostgreSQL, CPU of PostgreSQL's own processes, and the bytes that these write. The result
is kept as POSTGRES.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psycopg
from tests.server.postgres import PostgresServer, postgres_server

from benchmarks.record import RESULTS, Record
from benchmarks.server import (
    LARGE,
    Server,
    Tally,
    append_and_sync,
    cpu_s,
    push_for,
    serving,
    temporary,
)

BODY, GROUP, TURNS, SENDERS = 4 * LARGE, 8, 3, 32
LEAST = 60.0  # updates per second
UNITS = {"rate": "1/s", "CPU of the client": "ms", "CPU of PostgreSQL": "ms", "written": "MB"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="for each turn")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the result is kept")
    asked = parser.parse_args()
    record = Record("postgres", "POSTGRES: updates of 4 MB in PostgreSQL, and where the time goes")
    raw: list[float] = []
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with postgres_server() as database, temporary() as folder:
        place, many = database.new_place(), str(SENDERS)
        clients = {
            "PostgreSQL alone": Client(database, ""),
            "PostgreSQL alone, no write-ahead log": Client(database, "UNLOGGED"),
        }
        with serving(folder, LARGE, "--m", str(GROUP), store=place) as server:
            served = Served(server)
            for turn in range(TURNS + 1):  # the first one warms up
                raw.append(append_and_sync(folder, asked.seconds / 4) / BODY)
                for name, each in {**clients, f"the server, {many} senders": served}.items():
                    for what, value in cost(database, each, asked.seconds).items():
                        found[name][what] += [value] if turn else []
    record.measure("rate", raw[1:], unit="1/s", group="the disk alone")
    for name, values in found.items():
        for what, each in values.items():
            better = "higher" if what == "rate" else "lower"
            record.measure(what, each, unit=UNITS[what], better=better, group=name)
    rates = {m.group: m.median for m in record.measures if m.name == "rate"}
    alone, whole = rates["PostgreSQL alone"], rates[f"the server, {SENDERS} senders"]
    record.ratio("the server / PostgreSQL alone", whole / alone)
    record.bound("4 MB updates, PostgreSQL: answered, 1/s", whole, least=LEAST)
    return record.finish(asked.out)


class Client:
    """Writes bodies to a table of its own, a group per transaction."""

    def __init__(self, database: PostgresServer, kind: str) -> None:
        self._table, self.pid = f"bodies{kind}".lower(), os.getpid()
        self._connection = psycopg.connect(database.url(), autocommit=True)
        self._connection.execute(f"CREATE {kind} TABLE {self._table} (seq bigserial, body bytea)")
        self._connection.execute(
            f"ALTER TABLE {self._table} ALTER COLUMN body SET STORAGE EXTERNAL"
        )
        self._rows = [(os.urandom(BODY),)] * GROUP

    def __call__(self, seconds: float) -> float:
        begun, count = time.perf_counter(), 0
        self._connection.execute(f"TRUNCATE {self._table}")
        while time.perf_counter() - begun < seconds:
            with self._connection.transaction():
                query = f"INSERT INTO {self._table} (body) VALUES (%b)"
                self._connection.cursor().executemany(query, self._rows)
            count += GROUP
        return count / (time.perf_counter() - begun)


class Served:
    """Sends updates to the server."""

    def __init__(self, server: Server) -> None:
        self._server, self.pid = server, server.process.pid

    def __call__(self, seconds: float) -> float:
        return push_for(self._server, seconds, senders=SENDERS, tally=Tally())


def cost(database: PostgresServer, client: Client | Served, seconds: float) -> dict[str, float]:
    """The rate of a client, and what each update cost."""
    before = cpu_s(client.pid), *spent(database)
    begun = time.perf_counter()
    rate = client(seconds)
    count = rate * (time.perf_counter() - begun)
    after = cpu_s(client.pid), *spent(database)
    own, theirs, written = (b - a for a, b in zip(before, after, strict=True))
    per = 1e3 / count
    values = rate, own * per, theirs * per, written / 1e6 / count
    return dict(zip(UNITS, values, strict=True))


def spent(database: PostgresServer) -> tuple[float, float]:
    """Seconds of CPU and bytes given to the disk by PostgreSQL's processes so far."""
    assert database.process is not None
    cpu = written = 0.0
    for pid in (database.process.pid, *children(database.process.pid)):
        with suppress(OSError):  # it has ended
            cpu += cpu_s(pid)
            lines = Path(f"/proc/{pid}/io").read_text().splitlines()
            written += sum(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
    return cpu, written


def children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended
            continue
        if int(words[1]) == parent:
            found.append(int(path.parent.name))
    return found


if __name__ == "__main__":
    sys.exit(main())
