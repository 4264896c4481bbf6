"""Requests that no honest worker sends: mutated heads and bodies, as bytes for a socket."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

from tests.chaos.servers import LAYOUT
from tests.chaos.updates import encoded

PATHS = [
    b"/v1/updates", b"/v1/model", b"/v1/status", b"/metrics", b"/healthz", b"/v1/openapi.json",
    b"/v1/runs/x/models/0", b"/v1/runs/%00/models/-1", b"/v1/runs/a/models/9" + b"9" * 30, b"/",
    b"//", b"/v1/updates/", b"/v1/../v1/model", b"/%2e%2e/%2e%2e/etc/passwd", b"/\xff\xfe", b"*",
    b"http://[::1/v1/status", b"/" + b"a" * 8000, b"/v1/model?" + b"x=1&" * 500, b"/\0", b"",
    b"/v1/runs/" + b"%F0%9F%92%A9" * 20 + b"/models/1", b"/v1/events%0d%0aX:%20y",
]  # fmt: skip
METHODS = [b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"PATCH",
           b"FOO", b"get", b"\0", b"PRI", b"G" * 300]  # fmt: skip
HEADERS = [
    b"Content-Length: 99999999999999999999999", b"Content-Length: -5", b"Content-Length: 1e3",
    b"Content-Length: 0x10", b"Content-Length: ", b"Content-Length: 12, 13", b"Content-Length: +7",
    b"Content-Length: 1125899906842624", b"Content-Length: 5", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: identity", b"Expect: 100-continue",
    b"Expect: nonsense", b"Connection: close", b"Connection: upgrade", b"Upgrade: websocket",
    b"Upgrade: h2c", b"Host: [", b"Host: [::1", b"Host: a b", b"Host: x:99999999", b"Host:",
    b"Host: \xff\xfe", b"Authorization: Bearer ", b"Authorization: Bearer " + b"x" * 4000,
    b"Authorization: Basic eDp5", b"Authorization: Bearer \xff\xff", b"Authorization: \0",
    b"Range: bytes=0-", b"Range: bytes=-0", b"Range: bytes=5-2", b"Range: bytes=" + b"9" * 30,
    b"Range: bytes=0-1,3-4", b"Range: lines=1-2", b"If-None-Match: *", b"If-None-Match: \xff",
    b"If-None-Match: " + b'"a",' * 500, b"If-Range: x", b"X: " + b"y" * 20_000, b": nameless",
    b"No colon", b" folded: header", b"X\0Y: z", b"Content-Encoding: gzip", b"Cookie: a=b",
    b"Content-Type: text/plain", b"Origin: null", b"Origin: http://evil.example",
    b"Host: evil.example",
]  # fmt: skip


def requests(seed: int) -> bytes:
    """One connection's worth of bytes; the same for the same seed."""
    rng = random.Random(seed)
    data = b"".join(_request(rng) for _ in range(rng.choice((1, 1, 1, 1, 1, 1, 2, 5))))
    if rng.random() < 0.2:
        data = _mutated(rng, data)
    if rng.random() < 0.2:
        data = data[: rng.randrange(len(data) + 1)]
    return data


def _request(rng: random.Random) -> bytes:
    body = _body(rng)
    method, path = b"POST", b"/v1/updates"
    if rng.random() < 0.4:
        method, path = rng.choice((b"GET", b"GET", rng.choice(METHODS))), rng.choice(PATHS)
    headers = [b"Host: server"] if rng.random() < 0.9 else []
    if rng.random() < 0.95:
        headers.append(b"Content-Type: application/octet-stream")
    if rng.random() < 0.95:
        headers.append(b"Content-Length: %d" % len(body))
    headers += rng.sample(HEADERS, rng.choice((0, 0, 0, 0, 1, 1, 3)))
    if rng.random() < 0.05:
        headers += [b"Content-Length: %d" % rng.randrange(100)] * 2
    if rng.random() < 0.1:
        headers, body = [b"Host: s", b"Transfer-Encoding: chunked"], _chunked(rng, body)
    version = b"HTTP/1.1"
    if rng.random() < 0.05:
        version = rng.choice((b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"JUNK"))
    return b"\r\n".join([b" ".join((method, path, version)), *headers, b"", body])


def _chunked(rng: random.Random, body: bytes) -> bytes:
    sizes = (b"%x" % len(body), b"-1", b"zz", b"ffffffffffffffffff", b"", b"0", b"5;ext=\0")
    return rng.choice(sizes) + b"\r\n" + body + rng.choice((b"\r\n0\r\n\r\n", b"", b"\r\n"))


def _body(rng: random.Random) -> bytes:
    """Of a version that does not exist yet, so that not even an unharmed one is accepted."""
    kind = rng.random()
    if kind < 0.1:
        return rng.randbytes(rng.randrange(200))
    if kind < 0.2:
        header = rng.choice((b"{}", b"[" * 5000, b'{"__metadata__":{}}', b"\xff" * 50, b"null"))
        return len(header).to_bytes(8, "little") + header
    body = encoded(LAYOUT, "fuzz", str(rng.randrange(100)), base_version=10**9)
    return _mutated(rng, body) if kind < 0.9 else body


def _mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        if not changed:
            break
        at, kind = rng.randrange(len(changed)), rng.randrange(5)
        if kind == 0:
            changed[at] = rng.randrange(256)
        elif kind == 1:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del changed[at : at + rng.randint(1, 40)]
        elif kind == 3:
            changed[at:at] = rng.choice((b"\0", b"\r\n", b"{", b'"', b"NaN", b"9" * 20, b"\xff"))
        else:
            changed[at:at] = changed[at : at + rng.randint(1, 200)]
    return bytes(changed)


def exchange(port: int, data: bytes, *, patience_s: float) -> bytes:
    """Send it, in one piece, and take what comes; hang up when no more does."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), 10) as connection, suppress(OSError):
        connection.sendall(data)
        connection.settimeout(patience_s)
        while piece := connection.recv(1 << 16):
            heard += piece
            connection.settimeout(min(patience_s, 0.03))
    return heard
