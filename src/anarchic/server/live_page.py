"""The live page over HTTP: its files, and the stream of pictures that it shows."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from anarchic.page.assets import HEADERS, NO_PLOTLY, PLOTLY, asset, plotly
from anarchic.server.event_stream import EventStream
from anarchic.server.refusals import Refusal
from anarchic.server.service import Service


async def page(service: Service, request: Request) -> Response:
    return file_named(request.path_params.get("name", "index.html"), request)


async def live(service: Service, request: Request) -> Response:
    """Server-sent events: a picture of the run, made once for all who look."""
    stream = EventStream(service, request, service.pictures.watch())
    stream.headers.update(HEADERS)
    return stream


def file_named(name: str, request: Request) -> Response:
    """A file of the page, unless the browser has it already."""
    found = plotly() if name == PLOTLY else asset(name)
    if found is None and name == PLOTLY:
        raise Refusal(404, "not_found", NO_PLOTLY, "The page works without it, but for zooming.")
    if found is None:
        raise Refusal(404, "not_found", "The page has no such file.", "Open / instead.")
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=found.headers)
    return Response(found.body, 200, found.headers, found.kind)
