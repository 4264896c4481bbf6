"""The routes of ``serve --join``: the page of a worker in the browser, its files, its QR code."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anarchic.errors import ConfigError
from anarchic.page.join import INDEX, PageFile, join_files, qr_code
from anarchic.server.answering import Answering
from anarchic.server.paths import join_path
from anarchic.server.refusals import Refusal
from anarchic.server.service import Service

MOST_HOST = 100  # characters


def join_routes(service: Service) -> list[Route]:
    """The page, which lies at /join, and what it loads from /join/."""
    join_files()  # read now: a file that is missing must not be found out by a visitor
    return [
        Route("/join", Answering(service, page), methods=["GET"]),
        Route("/join.svg", Answering(service, code), methods=["GET"]),
        Route("/join/{name}", Answering(service, file), methods=["GET"]),
    ]


async def page(service: Service, request: Request) -> Response:
    return _sent(join_files()[INDEX], request)


async def file(service: Service, request: Request) -> Response:
    name = request.path_params["name"]
    found = join_files().get(name)
    if found is None or name == INDEX:
        told = f"There is no file {name[:48]!r} here."
        raise Refusal(404, "not_found", told, "Load /join.")
    return _sent(found, request)


async def code(service: Service, request: Request) -> Response:
    """A QR code of the page's address, as whoever asks reaches this server."""
    host = request.headers.get("host", "")
    if len(host) > MOST_HOST:  # the larger a code, the longer it takes
        raise Refusal(404, "not_found", "The address is too long for a QR code.", "Copy it.")
    address = request.app.state.origins.url(host) + join_path(service.name)
    try:
        return _sent(await asyncio.to_thread(qr_code, address), request)
    except ConfigError as error:
        raise Refusal(404, "not_found", str(error), "Or copy the address of /join.") from error


def _sent(found: PageFile, request: Request) -> Response:
    if found.kept and request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=found.headers)
    return Response(found.body, headers=found.headers, media_type=found.kind)
