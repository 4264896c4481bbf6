"""HTTP by hand, so that a request can be cut anywhere and an answer left unread."""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import dataclass, field
from typing import Any


class Unreachable(Exception):
    """No answer: the connection was refused, cut, or silent for too long."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        return json.loads(self.body)


def push_head(length: int, token: str | None = None) -> bytes:
    lines = ["POST /v1/updates HTTP/1.1", "Host: server", f"Content-Length: {length}"]
    lines.append("Content-Type: application/octet-stream")
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode()


class Line:
    """A connection that is opened when needed and kept while the server keeps it."""

    def __init__(self, port: int, timeout_s: float = 15.0) -> None:
        self._port, self._timeout_s = port, timeout_s
        self._socket: socket.socket | None = None
        self._held = b""

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._held = None, b""

    def send(self, data: bytes) -> None:
        try:
            if self._socket is None:
                address = ("127.0.0.1", self._port)
                self._socket = socket.create_connection(address, self._timeout_s)
            self._socket.sendall(data)
        except OSError as error:
            self.close()
            raise Unreachable(repr(error)) from error

    def push(self, body: bytes, token: str | None = None) -> Answer:
        self.send(push_head(len(body), token) + body)
        return self.answer()

    def get(self, path: str, *headers: str) -> Answer:
        lines = [f"GET {path} HTTP/1.1", "Host: server", *headers, "", ""]
        self.send("\r\n".join(lines).encode())
        return self.answer()

    def answer(self) -> Answer:
        try:
            return self._answer()
        except (OSError, ValueError, IndexError) as error:
            self.close()
            raise Unreachable(repr(error)) from error

    def _answer(self) -> Answer:
        while b"\r\n\r\n" not in self._held:
            self._more()
        head, _, self._held = self._held.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        status, length = int(first.split()[1]), int(headers.get("content-length", "0"))
        if status == 304:
            length = 0
        while len(self._held) < length:
            self._more()
        body, self._held = self._held[:length], self._held[length:]
        if headers.get("connection") == "close":
            self.close()
        return Answer(status, body, headers)

    def _more(self) -> None:
        data = self._socket.recv(1 << 16) if self._socket is not None else b""
        if not data:
            raise ConnectionError("the server hung up")
        self._held += data

    def receive(self, most: int) -> bytes:
        """What has come, ``most`` bytes of it at most; nothing at the end."""
        assert self._socket is not None
        return self._socket.recv(most)

    def hung_up(self, within_s: float) -> bool:
        """Whether the server ends the connection by itself, soon."""
        assert self._socket is not None
        self._socket.settimeout(within_s)
        try:
            while self._socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True


def get_json(port: int, path: str, timeout_s: float = 15.0) -> tuple[int, Any]:
    with Line(port, timeout_s) as line:
        answer = line.get(path)
    with contextlib.suppress(ValueError):
        return answer.status, answer.json()
    return answer.status, None
