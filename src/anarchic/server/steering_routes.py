"""Commands of operators over HTTP."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from anarchic.core.reading import parse_json, reason
from anarchic.errors import ConfigError
from anarchic.server.refusals import Refusal, length_required
from anarchic.server.service import Service

MOST_BYTES = 1 << 16
BODY_S = 10.0  # in which the body must come
SHOWN = 100  # commands, the newest
STEERING = ["GET", "POST"]
JSON = "application/json"  # a web page cannot send it elsewhere without asking first


async def steering(service: Service, request: Request) -> Response:
    """The newest commands and what became of them; or a new one, applied within a second."""
    if request.method != "POST":
        return JSONResponse({"commands": await service.commands(SHOWN)})
    asked = await _body(request)
    kind, arguments = asked.get("kind"), asked.get("arguments", {})
    if not (isinstance(kind, str) and isinstance(arguments, dict)):
        raise _malformed("A command has a kind, a text, and arguments, an object.")
    by = service.access.shown(request.headers.get("authorization")) or _address(request)
    try:
        return JSONResponse(await service.command(kind, arguments, by=by), 202)
    except ConfigError as error:
        raise Refusal(400, "bad_command", str(error), "Correct the command.") from error


async def revoking(service: Service, request: Request) -> Response:
    """Revoke the token of a worker: every server refuses it within a second."""
    worker = (await _body(request)).get("worker")
    if not isinstance(worker, str):
        raise Refusal(400, "malformed", "No worker is named.", 'Send {"worker": "ann"}.')
    try:
        await service.revoke(worker)
    except ConfigError as error:
        raise Refusal(400, "bad_command", str(error), "Name a worker with a token.") from error
    by = service.access.shown(request.headers.get("authorization")) or _address(request)
    service.log("token_revoked", worker=worker, by=by)
    return JSONResponse({"worker": worker, "revoked": True})


async def _body(request: Request) -> dict[str, Any]:
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != JSON:
        told = f"The command has Content-Type {given[:100]!r}."
        raise Refusal(415, "wrong_type", told, f"Send 'Content-Type: {JSON}'.")
    length = request.headers.get("content-length", "")
    if not re.fullmatch(r"[0-9]{1,20}", length):
        raise length_required()
    if int(length) > MOST_BYTES:
        told = f"The command has {length} bytes, and may have {MOST_BYTES}."
        raise Refusal(413, "too_large", told, "Send a shorter one.")
    try:
        async with asyncio.timeout(BODY_S):
            found = parse_json(await request.body())
    except TimeoutError:
        told = f"The command did not come within {BODY_S:.0f} s."
        raise Refusal(408, "too_slow", told, "Send it again.") from None
    except ValueError as error:
        raise _malformed(f"The command is not JSON ({reason(error)}).") from error
    if not isinstance(found, dict):
        raise _malformed("The command is not an object.")
    return found


def _malformed(told: str) -> Refusal:
    return Refusal(400, "malformed", told, 'Send {"kind": "pause"} or the like.')


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else "?"
