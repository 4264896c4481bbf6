"""One request and its answer: given up at its deadline, or when the worker is told to stop.

It runs in a thread of its own. The timeouts of a socket do not cover the look-up of a name, nor an
answer that comes byte by byte, and a thread that waits for the network notices no signal.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, final

import httpx

from anarchic.core.reading import printable
from anarchic.worker.connection import Connection, RetryableError

MAX_ANSWER = 1 << 30  # bytes: no store holds a larger model
MAX_TOLD = 1 << 16  # bytes that are read of any other answer


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the server, whole; of one that is no model, at most ``MAX_TOLD`` bytes."""

    status_code: int
    reason_phrase: str
    headers: Mapping[str, str]
    content: bytearray
    request: httpx.Request


@final
class Exchange:
    """A request on its way. ``stop`` may be called by a signal handler or another thread."""

    def __init__(self, http: httpx.Client, message: httpx.Request, streams: list[Any]) -> None:
        self._http, self._message = http, message
        self._streams = streams  # of the client; the last is the one in use
        self._found: SimpleQueue[Reply | BaseException | None] = SimpleQueue()  # None: stop
        self._given_up = False
        self._moved = int(message.headers.get("Content-Length", 0))  # bytes there and back

    def stop(self) -> None:
        """Wait no longer than ``stop_s`` from now."""
        self._found.put(None)

    def answer(self, limits: Connection) -> Reply:
        """Send the request and wait for the answer, ``timeout_s`` and ``least_rate`` allowing."""
        self._message.extensions = {**self._message.extensions, "trace": self._trace}
        threading.Thread(target=self._run, name="anarchic-request", daemon=True).start()
        begun = time.monotonic()
        stop_at, why = float("inf"), "unreachable"
        try:
            while True:
                slowest = limits.timeout_s + self._moved / limits.least_rate
                left = min(begun + slowest, stop_at) - time.monotonic()
                if left <= 0:
                    break
                with contextlib.suppress(Empty):  # bytes may have come: look again
                    found = self._found.get(timeout=left)
                    if isinstance(found, BaseException):
                        try:
                            raise found
                        finally:
                            del found  # or its traceback, which has this frame, would hold itself
                    if found is not None:
                        return found
                    stop_at = min(stop_at, time.monotonic() + limits.stop_s)
                    why = "stopped"
        except BaseException:
            self._give_up()
            raise
        self._give_up()
        took_s = time.monotonic() - begun
        raise RetryableError(why, f"There was no whole answer after {took_s:.1f} s.")

    def _run(self) -> None:
        try:
            self._found.put(self._read(self._http.send(self._message, stream=True)))
        except BaseException as error:  # whatever it is, it is raised where it is waited for
            self._found.put(error)

    def _read(self, response: httpx.Response) -> Reply:
        with contextlib.closing(response):
            packed = response.headers.get("Content-Encoding", "identity")
            if packed.lower() != "identity":
                raise RetryableError(
                    "garbled",
                    f"The answer is packed ({printable(packed, most=40)}), which nobody asked for.",
                )
            model = response.status_code == 200 and self._message.method == "GET"
            if model and int(response.headers.get("Content-Length", 0)) > MAX_ANSWER:
                raise _too_long()
            content = bytearray()
            try:
                for piece in response.iter_bytes():
                    content += piece
                    self._moved += len(piece)
                    if self._given_up or (not model and len(content) >= MAX_TOLD):
                        break
                    if len(content) > MAX_ANSWER:
                        raise _too_long()
            except BaseException:
                content.clear()  # the error's traceback holds it, maybe until the next answer comes
                raise
            if self._given_up:  # nobody reads it
                content.clear()
        told = response.status_code, response.reason_phrase, response.headers
        return Reply(*told, content, self._message)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """httpx calls it at every step of a request."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            if self._given_up:
                _shut(info["return_value"])
            else:
                self._streams[:] = [info["return_value"]]
        elif self._given_up and event.endswith("send_request_headers.started"):
            raise httpx.WriteError("The request was given up.")

    def _give_up(self) -> None:
        """End the thread soon: what waits for a socket fails once it is shut down."""
        self._given_up = True
        for stream in self._streams:
            _shut(stream)


def _too_long() -> RetryableError:
    return RetryableError("garbled", f"The answer has more than {MAX_ANSWER} bytes.")


def _shut(stream: Any) -> None:
    with contextlib.suppress(OSError):  # it may be closed by now
        stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
