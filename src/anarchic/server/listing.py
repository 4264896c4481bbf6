"""The answer to ``GET /v1/workers``: who takes part, for operators."""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from anarchic.server.openapi import MOST_LISTED
from anarchic.server.overview import SORTS
from anarchic.server.refusals import Refusal
from anarchic.server.service import Service

LISTED = 100  # workers in one answer, by default


async def workers(service: Service, request: Request) -> Response:
    """A page of the workers, in an order that is asked for."""
    asked = request.query_params
    limit = _whole(asked, "limit", LISTED, least=1)
    first = _whole(asked, "first", 0, least=0)
    sort = asked.get("sort", SORTS[0])
    if sort not in SORTS:
        message = f"There is no order {sort[:40]!r}."
        raise Refusal(400, "malformed", message, f"Sort by {', '.join(SORTS)}.")
    return JSONResponse(await service.workers(sort, first, limit))


def _whole(asked: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = asked.get(name, str(default))
    if not (re.fullmatch(r"[0-9]{1,6}", text) and least <= int(text) <= MOST_LISTED):
        message = f"{name} must be a whole number, {least} to {MOST_LISTED}."
        raise Refusal(400, "malformed", message, "Ask for fewer.")
    return int(text)
