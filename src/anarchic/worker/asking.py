"""Asking a server for JSON, once, as an operator does."""

from __future__ import annotations

from typing import Any

import httpx

from anarchic.core.reading import parse_json, printable
from anarchic.errors import WorkerError
from anarchic.worker import tls
from anarchic.worker.connection import Connection
from anarchic.worker.servers import checked_url

MAX_ANSWER = 1 << 24  # bytes
MAX_TOLD = 300  # characters of an answer that is no JSON


def ask(url: str, path: str, *, token: str | None, connection: Connection) -> dict[str, Any]:
    """The object that a server answers ``GET path`` with; ``WorkerError`` where there is none."""
    base = checked_url(url)
    headers = {"Accept-Encoding": "identity"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    where = f"{str(base).rstrip('/')}{path}"
    verify = connection.tls() if connection.transport is None else True
    try:
        with (
            httpx.Client(
                verify=verify, timeout=connection.timeout_s, transport=connection.transport
            ) as http,
            http.stream("GET", where, headers=headers) as answer,
        ):
            content = _body(answer)
    except httpx.HTTPError as error:
        why = tls.refusal_of(error) if isinstance(error, httpx.RequestError) else None
        told = why or f"{type(error).__name__}: {printable(str(error), most=200).rstrip('.')}"
        raise WorkerError(f"{base} cannot be asked: {told}.", "unreachable") from None
    return _read(answer.status_code, content, where)


def _body(answer: httpx.Response) -> bytearray:
    content = bytearray()
    for piece in answer.iter_raw():
        content += piece
        if len(content) > MAX_ANSWER:
            raise WorkerError(f"The answer has more than {MAX_ANSWER} bytes.", "too_large")
    return content


def _read(status: int, content: bytearray, where: str) -> dict[str, Any]:
    try:
        found = parse_json(content)
    except ValueError:
        found = None
    if status == 200 and isinstance(found, dict):
        return found
    if isinstance(found, dict) and "error" in found:
        told = " ".join(str(found.get(name, "")) for name in ("message", "remedy")).strip()
        raise WorkerError(printable(told, most=MAX_TOLD), printable(str(found["error"]), most=64))
    start = printable(str(content[:MAX_TOLD], "utf-8", "replace"), most=MAX_TOLD)
    raise WorkerError(
        f"{where} answered {status} with something else than JSON, which begins with {start!r}: "
        "a proxy may be in between.",
        "not_json",
    )
