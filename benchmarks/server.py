"""The live server under load: durable SQLite, a raw-socket load generator, loopback.

    python -m benchmarks.server [--seconds 8]

Every figure is of a server process of its own (``anarchic serve``), in the steady state: versions
are published and old payloads deleted all the while. Beside it stands what the disk alone can do,
measured in turns with it: appending as many bytes and syncing them. At the end the servers of other
frameworks stand beside ours (``benchmarks/peers/load_race.py``). The result is kept as W6.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from anarchic import Layout, Update, wire
from benchmarks.peers.load_race import race
from benchmarks.peers.load_turns import free_port, wait_for
from benchmarks.record import RESULTS, Record

LARGE, SMALL = 1_000_000, 10_000  # numbers in a model: 4 MB and 40 KB
REPEATS = 3
PUSH = "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/octet-stream\r\n"
# The load comes from few workers, which never pull.
FREE = (
    *("--per-worker", "100000", "--updates-per-minute", "1e9"),
    *("--max-staleness", "1000000000"),
)


@dataclass
class Tally:
    """What the senders saw."""

    statuses: dict[int, int] = field(default_factory=dict)
    latencies_s: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, status: int, latency_s: float) -> None:
        with self.lock:
            self.statuses[status] = self.statuses.get(status, 0) + 1
            self.latencies_s.append(latency_s)


@dataclass
class Server:
    port: int
    process: subprocess.Popen[bytes]
    layout: Layout
    path: str = "/v1/updates"

    @property
    def push(self) -> str:
        return PUSH.format(path=self.path)

    def peak_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="for each of the figures")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the result is kept")
    asked = parser.parse_args()
    record = Record("w6", "W6: the live server under load, SQLite, over loopback")
    for part in (large_updates, small_updates, pulls, crowd, trickle):
        part(asked.seconds, record)
    race(record)
    return record.finish(asked.out)


def large_updates(seconds: float, record: Record) -> None:
    with temporary() as folder:
        raw, rates, tally = [], [], Tally()
        with serving(folder, LARGE, "--m", "8") as server:
            push_for(server, 2.0, senders=32, tally=Tally())  # warm, and into the steady state
            for _ in range(REPEATS):
                raw.append(append_and_sync(folder, seconds / 4) / (4 * LARGE))
                rates.append(push_for(server, seconds / REPEATS, senders=32, tally=tally))
    disk = record.measure("appended and synced", raw, unit="1/s", group="4 MB, the disk alone")
    rate = answered(record, "4 MB updates, 32 senders", rates, tally, least=60)
    record.ratio("4 MB updates: share of the disk's own rate", rate / disk, least=0.5)


def small_updates(seconds: float, record: Record) -> None:
    tally = Tally()
    with temporary() as folder, serving(folder, SMALL, "--m", "64") as server:
        push_for(server, 2.0, senders=32, tally=Tally())
        rates = [push_for(server, s, senders=32, tally=tally) for s in parts(seconds)]
    answered(record, "40 KB updates, 32 senders", rates, tally, least=1000)


def pulls(seconds: float, record: Record) -> None:
    alone, busy = Tally(), Tally()
    with temporary() as folder, serving(folder, LARGE, "--m", "8") as server:
        rates = [pull_for(server, s, senders=8, tally=alone) for s in parts(seconds / 2)]
        streaming = threading.Thread(
            target=push_for, args=(server, seconds + 2.0), kwargs={"senders": 4, "tally": Tally()}
        )
        streaming.start()
        time.sleep(1.0)
        beside = [pull_for(server, s, senders=8, tally=busy) for s in parts(seconds)]
        streaming.join()
    answered(record, "conditional GETs", rates, alone, least=2000)
    answered(record, "conditional GETs beside 4 MB updates", beside, busy, least=500)


def crowd(seconds: float, record: Record) -> None:
    tally, group = Tally(), "4 MB updates, 64 senders"
    with temporary() as folder, serving(folder, LARGE, "--m", "8") as server:
        rates = [push_for(server, s, senders=64, tally=tally) for s in parts(seconds)]
        peak = server.peak_mb()
    answered(record, group, rates, tally)
    record.measure("peak of the server", [peak], unit="MiB", better="lower", group=group)
    record.bound(f"{group}: peak of the server, MiB", peak, most=40 * 4 * LARGE / 2**20 + 300)


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used so far."""
    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def trickle(seconds: float, record: Record) -> None:
    beside = Tally()
    with temporary() as folder, serving(folder, LARGE, "--m", "8") as server:
        alone = [push_for(server, s, senders=4, tally=Tally()) for s in parts(seconds / 2)]
        stop = threading.Event()
        slow = [threading.Thread(target=drip, args=(server, stop)) for _ in range(32)]
        for thread in slow:
            thread.start()
        time.sleep(1.0)
        rates = [push_for(server, s, senders=4, tally=beside) for s in parts(seconds / 2)]
        stop.set()
        for thread in slow:
            thread.join()
    rate = answered(record, "4 MB updates beside 32 trickling senders", rates, beside)
    share = rate / statistics.median(alone)
    record.ratio("4 MB updates: share kept beside trickling senders", share, least=0.5)


def parts(seconds: float) -> list[float]:
    return [seconds / REPEATS] * REPEATS


def answered(
    record: Record, group: str, rates: list[float], tally: Tally, *, least: float | None = None
) -> float:
    """Keep a rate with its latencies, and its bound if it has one."""
    rate = record.measure("answered", rates, unit="1/s", group=group)
    for percent in (50, 95, 99):
        latency = float(np.percentile(tally.latencies_s, percent)) * 1e3
        record.measure(f"p{percent}", [latency], unit="ms", better="lower", group=group)
    if least is not None:
        record.bound(f"{group}: answered, 1/s", rate, least=least)
    return rate


@contextmanager
def temporary() -> Iterator[Path]:
    """A folder on the disk that is measured; BENCH_DIR names another than the usual one."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        yield Path(folder)


@contextmanager
def serving(folder: Path, dim: int, *flags: str, store: str | None = None) -> Iterator[Server]:
    layout = Layout.of({"weight": ((dim,), "F32")})
    wire.save_model(folder / "model.safetensors", layout, np.zeros(dim, np.float32))
    port = free_port()
    command = [sys.executable, "-m", "anarchic", "serve", "--open-enrolment", "--port", str(port)]
    command += ["--init", str(folder / "model.safetensors")]
    command += ["--store", store or str(folder / "run.db")]
    process = subprocess.Popen([*command, *FREE, *flags], stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield Server(port, process, layout)
    finally:
        process.terminate()
        process.wait(120)  # it finishes what was accepted, which takes a while after such a load


def append_and_sync(folder: Path, seconds: float) -> float:
    """Bytes per second that the disk takes, a model at a time, each synced."""
    body = os.urandom(4 * LARGE)
    path = folder / "raw"
    start, written = time.perf_counter(), 0
    with open(path, "wb", buffering=0) as file:
        while time.perf_counter() - start < seconds:
            written += file.write(body)
            os.fdatasync(file.fileno())
    took = time.perf_counter() - start
    path.unlink()
    return written / took


def connected(port: int) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), 30)
    # As every HTTP client does: otherwise the kernel holds a body back for the head's receipt.
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def push_for(server: Server, seconds: float, *, senders: int, tally: Tally) -> float:
    """Accepted updates per second."""
    until, run = time.perf_counter() + seconds, os.urandom(4).hex()
    accepted = sum(together(senders, lambda n: push_until(server, until, f"{run}{n}", tally)))
    return accepted / seconds


def push_until(server: Server, until: float, name: str, tally: Tally) -> int:
    """One connection, one worker: its updates differ in their ids alone."""
    dim = server.layout.dim
    direction = np.random.default_rng(0).standard_normal(dim, dtype=np.float32)
    made = Update(name, 0, 1, 1e-6, direction, id="0" * 12)
    body = wire.encode_update(server.layout, made, worker=name)
    size = 8 + int.from_bytes(body[:8], "little")
    header, data = body[:size], memoryview(body)[size:]
    accepted = 0
    with connected(server.port) as link:
        for number in range(10**12):
            if time.perf_counter() > until:
                return accepted
            head = (f"{server.push}content-length: {len(body)}\r\n\r\n").encode()
            start = time.perf_counter()
            link.sendall(head + header.replace(b"0" * 12, b"%012d" % number))
            link.sendall(data)
            status = answer(link)
            tally.add(status, time.perf_counter() - start)
            accepted += status == 202
            if status != 202:
                raise RuntimeError(f"an update was answered with {status}")
    return accepted


def pull_for(server: Server, seconds: float, *, senders: int, tally: Tally) -> float:
    until = time.perf_counter() + seconds
    return sum(together(senders, lambda n: pull_until(server, until, tally))) / seconds


def pull_until(server: Server, until: float, tally: Tally) -> int:
    count, etag = 0, ""
    with connected(server.port) as link:
        while time.perf_counter() < until:
            request = f"GET /v1/model HTTP/1.1\r\nhost: x\r\nif-none-match: {etag}\r\n\r\n"
            start = time.perf_counter()
            link.sendall(request.encode())
            head, status = answer_head(link)
            if status == 200:  # a new version: pulled once, named from then on
                etag = head.split("etag: ")[1].split("\r\n")[0]
            else:
                tally.add(status, time.perf_counter() - start)
                count += status == 304
    return count


def drip(server: Server, stop: threading.Event) -> None:
    """A sender that never gets anywhere, and begins again when it is hung up on."""
    head = f"{server.push}content-length: {4 * LARGE}\r\n\r\n".encode()
    while not stop.is_set():
        try:
            with socket.create_connection(("127.0.0.1", server.port), 5) as link:
                link.sendall(head + b"\x50")
                while not stop.wait(0.05):
                    link.sendall(b"x" * 64)
        except OSError:
            continue


def together(count: int, work: Callable[[int], int]) -> list[int]:
    found: list[int] = []
    threads = [threading.Thread(target=lambda n=n: found.append(work(n))) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(found) != count:
        raise RuntimeError("a sender failed")
    return found


def answer(link: socket.socket) -> int:
    return answer_head(link)[1]


def answer_head(link: socket.socket) -> tuple[str, int]:
    """Head and status of one answer; its body is read and dropped."""
    got = b""
    while b"\r\n\r\n" not in got:
        more = link.recv(65536)
        if not more:
            raise RuntimeError("the server hung up")
        got += more
    head, _, rest = got.partition(b"\r\n\r\n")
    text = head.decode()
    status = int(text.split()[1])
    lower = text.lower()
    length = (
        int(lower.split("content-length: ")[1].split("\r\n")[0]) if "content-length" in lower else 0
    )
    left = 0 if status == 304 else length - len(rest)
    while left > 0:
        left -= len(link.recv(min(left, 1 << 20)))
    return text, status


if __name__ == "__main__":
    sys.exit(main())
