"""Abuses of every kind, mixed, by many connections: the memory of a real server stays flat.

ANARCHIC_ABUSES says how many; 64,000 take some minutes.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import sys
import threading
from collections import Counter
from contextlib import suppress

import pytest

from anarchic import Layout
from tests.chaos.servers import ServerProcess, write_model
from tests.chaos.talk import Line
from tests.hostile.attackers import DATA, request_head, update_head

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

ABUSES = int(os.environ.get("ANARCHIC_ABUSES", "2000"))
SIZE = 10_000  # float32: a model of 40 KB
SENDERS = 8
ROOM_MB = 20
BODY = bytes(4 * SIZE)
TAIL = b"\r\nHost: x\r\n\r\n"


def pushed(body, *, length=None, token=None):
    return request_head(len(body) if length is None else length, token) + body


def update(rng, change=(b"", b"")):
    worker = f"eve{rng.randrange(10**6)}"
    old, new = change
    head = update_head(SIZE, f"{rng.random()}", worker=worker)
    return (head.replace(old, new) if old else head) + BODY


def no_header(rng):
    return struct.pack("<Q", rng.randrange(2**64)) + rng.randbytes(200)


KINDS = {
    "junk before HTTP": lambda rng: rng.randbytes(300),
    "no such page": lambda rng: b"GET /" + rng.randbytes(20).hex().encode() + b" HTTP/1.1" + TAIL,
    "wrong method": lambda rng: b"PUT /v1/updates HTTP/1.1" + TAIL,
    "head that never ends": lambda rng: b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000,
    "many headers": lambda rng: b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 900,
    "chunked body": lambda rng: b"POST /v1/updates HTTP/1.1\r\nTransfer-Encoding: chunked" + TAIL,
    "no length": lambda rng: b"POST /v1/updates HTTP/1.1" + TAIL,
    "vast length": lambda rng: request_head(10**15),
    "negative length": lambda rng: request_head(-1),
    "two lengths": lambda rng: request_head(1)[:-2] + b"Content-Length: 2\r\n\r\n",
    "junk for a body": lambda rng: pushed(rng.randbytes(4 * SIZE)),
    "junk for a header": lambda rng: pushed(no_header(rng)),
    "half a body": lambda rng: pushed(update(rng)[: 2 * SIZE], length=4 * SIZE),
    "not a number": lambda rng: pushed(update(rng)[: -4 * SIZE] + b"\xff" * (4 * SIZE)),
    "other tensors": lambda rng: pushed(update(rng, (b"weight", b"height"))),
    "version of tomorrow": lambda rng: pushed(update(rng, (b'version": "0', b'version": "999'))),
    "huge rate": lambda rng: pushed(update(rng, (b'lr": "0.1', b'lr": "1e308'))),
    "wrong token": lambda rng: pushed(update(rng), token=f"eve.{rng.random()}"),
    "new name each time": lambda rng: pushed(update(rng)),
    "pipelined": lambda rng: (b"GET /v1/status HTTP/1.1" + TAIL) * 20,
    "model, unread": lambda rng: b"GET /v1/model HTTP/1.1" + TAIL,
    "foreign page": lambda rng: b"GET /v1/status HTTP/1.1\r\nOrigin: http://evil.example" + TAIL,
    "foreign host": lambda rng: b"GET /v1/status HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "event stream, left": lambda rng: b"GET /v1/events HTTP/1.1" + TAIL,
}  # fmt: skip


def abuse(port, rng, kind):
    """One abuse; sometimes its answer is awaited, sometimes the line is cut at once."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as line:
        line.settimeout(0.2)
        line.sendall(KINDS[kind](rng))
        if rng.random() < 0.5:
            line.recv(1 << 16)


def abuses(server, count, seed):
    """So many, from several threads; how many there were of each kind."""
    done = Counter()

    def send(number):
        rng = random.Random(seed + number)
        for _ in range(count // SENDERS):
            kind = rng.choice(list(KINDS))
            abuse(server.port, rng, kind)
            done[kind] += 1

    threads = [threading.Thread(target=send, args=(n,)) for n in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


@pytest.mark.tried(
    "64,000 abuses of 24 kinds, mixed",
    before="not tried",
    now="within 20 MB of memory, and an honest update is accepted",
)
def test_mixed_abuses_leave_the_memory_as_it_was(tmp_path):
    layout = Layout.of({DATA: ((SIZE,), "F32")})
    init = write_model(tmp_path / "model.safetensors", layout)
    words = ("--open-enrolment", "--m", "4", "--updates-per-minute", "100000")
    with ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *words) as server:
        abuses(server, 1_000, seed=-SENDERS)  # whatever is loaded and allocated once
        before_mb = server.rss_mb()
        done = abuses(server, ABUSES, seed=0)
        grown_mb = server.rss_mb() - before_mb
        sys.stdout.write(f"{done.total()} abuses of {len(done)} kinds: {grown_mb:+.1f} MB\n")
        assert len(done) == len(KINDS)
        with Line(server.port) as line:
            assert line.get("/healthz").status == 200
            head = update_head(SIZE, "honest", worker="ann")
            assert line.push(head + BODY).status == 202
    assert grown_mb < ROOM_MB
