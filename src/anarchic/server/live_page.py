"""The live page over HTTP: its files, and the stream of pictures that it shows."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from anarchic.page.assets import HEADERS, NO_PLOTLY, PLOTLY, asset
from anarchic.server.answering import address_of, hang_up_of
from anarchic.server.event_stream import EventStream
from anarchic.server.refusals import Refusal
from anarchic.server.sending import Copies, InPieces
from anarchic.server.service import Service


async def page(service: Service, request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    return await file_named(name, request, service.copies)


async def live(service: Service, request: Request) -> Response:
    """Server-sent events: a picture of the run, made once for all who look."""
    stream = EventStream(service, request, service.pictures.watch())
    stream.headers.update(HEADERS)
    return stream


async def file_named(name: str, request: Request, copies: Copies) -> Response:
    """A file of the page, unless the browser has it already."""
    found = await copies.script() if name == PLOTLY else asset(name)
    if found is None and name == PLOTLY:
        raise Refusal(404, "not_found", NO_PLOTLY, "The page works without it, but for zooming.")
    if found is None:
        raise Refusal(404, "not_found", "The page has no such file.", "Open / instead.")
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=found.headers)
    if name == PLOTLY:
        end = await copies.begin(address_of(request), found, hang_up_of(request))
        return InPieces(found.body, found.headers, end, found.kind)
    return Response(found.body, 200, found.headers, found.kind)
