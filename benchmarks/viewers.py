"""The live page's cost: updates per second without viewers and with 50, in turns on one server.

    python -m benchmarks.viewers [--seconds 60]

64 workers push 40 KB updates as fast as the server takes them. The viewers are one process that
reads and drops what it is sent. CPU per viewer is what the server's process used per second beside
what its updates cost in the turns without viewers, divided by the viewers. The result is kept as
VIEWERS.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from anarchic.server.tokens import add_token
from benchmarks.record import RESULTS, Record
from benchmarks.server import SMALL, Server, Tally, cpu_s, push_for, serving, temporary

SENDERS, VIEWERS, TURNS = 64, 50, 4
READERS = "import sys; from benchmarks.viewers import read; read(*map(int, sys.argv[1:]))"
GROUP = f"40 KB updates, {SENDERS} senders"


@dataclass(frozen=True)
class Turn:
    """What one stretch of time came to."""

    rate: float  # updates per second
    cpu: float  # seconds of the server's CPU per second
    kilobytes: float  # per second that one viewer was sent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="for all turns together")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the result is kept")
    asked = parser.parse_args()
    record = Record("viewers", "VIEWERS: the live page with 50 viewers, over loopback")
    with temporary() as folder:
        token = add_token(folder / "run.db", "viewer", rights="operate")
        with serving(folder, SMALL, "--m", "64") as server:
            push_for(server, 2.0, senders=SENDERS, tally=Tally())
            each = asked.seconds / (2 * TURNS)
            turns = [turn(server, token, many, each) for _ in range(TURNS) for many in (0, VIEWERS)]
    judge(record, turns[0::2], turns[1::2])
    return record.finish(asked.out)


def judge(record: Record, alone: list[Turn], seen: list[Turn]) -> None:
    """Compare the turns without viewers with those that followed each, with them."""
    record.measure("without viewers", [t.rate for t in alone], unit="1/s", group=GROUP)
    record.measure(f"with {VIEWERS} viewers", [t.rate for t in seen], unit="1/s", group=GROUP)
    sent = [t.kilobytes for t in seen]
    record.measure("sent to one viewer", sent, unit="KiB/s", better="lower", group=GROUP)
    pairs = list(zip(alone, seen, strict=True))
    kept = statistics.median(b.rate / a.rate for a, b in pairs)
    record.ratio(f"updates per second with {VIEWERS} viewers / without", kept, least=0.95)
    spent = [(b.cpu - a.cpu * b.rate / a.rate) / VIEWERS for a, b in pairs]
    record.measure("CPU per viewer", [100 * s for s in spent], unit="% of a core", better="lower")
    most = 100 * statistics.median(spent)
    record.bound("CPU per viewer, % of a core", most, most=2.0)


def turn(server: Server, token: str, viewers: int, seconds: float) -> Turn:
    """Push for a while, with N viewers."""
    readers = None
    if viewers:
        words = [sys.executable, "-c", READERS, str(server.port), str(viewers)]
        readers = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert readers.stdin is not None
        assert readers.stdout is not None
        readers.stdin.write(f"{token}\n")
        readers.stdin.flush()
        readers.stdout.readline()  # all are sent something
    begun_cpu, begun = cpu_s(server.process.pid), time.perf_counter()
    rate = push_for(server, seconds, senders=SENDERS, tally=Tally())
    passed = time.perf_counter() - begun
    cpu = (cpu_s(server.process.pid) - begun_cpu) / passed
    return Turn(rate, cpu, 0.0 if readers is None else ended(readers, viewers, passed))


def ended(readers: subprocess.Popen[str], viewers: int, seconds: float) -> float:
    """KiB per second that one viewer was sent."""
    told, _ = readers.communicate(timeout=30)  # its input ends, and so does it
    return int(told) / 1024 / viewers / seconds


def read(port: int, viewers: int) -> None:
    """In a process of its own: follow the stream ``viewers`` times until the input ends."""
    token, links = sys.stdin.readline().strip(), selectors.DefaultSelector()
    asked = f"GET /v1/live HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n".encode()
    for _ in range(viewers):
        link = socket.create_connection(("127.0.0.1", port), 30)
        link.sendall(asked)
        links.register(link, selectors.EVENT_READ)
    links.register(sys.stdin, selectors.EVENT_READ)
    got: dict[int, int] = {}
    while True:
        for key, _ in links.select():
            if key.fileobj is sys.stdin:
                print(sum(got.values()), flush=True)
                return
            data = os.read(key.fd, 1 << 18)
            if not data or data.startswith(b"HTTP/1.1 4"):
                raise SystemExit(f"a viewer was turned away: {data[:80]!r}")
            first = len(got) < viewers
            got[key.fd] = got.get(key.fd, 0) + len(data)
            if first and len(got) == viewers:
                got = dict.fromkeys(got, 0)
                print("all", flush=True)


if __name__ == "__main__":
    sys.exit(main())
