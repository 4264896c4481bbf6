"""The live page for a recorded or running run, read-only, on this machine alone."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from anarchic.errors import ConfigError
from anarchic.page.assets import HEADERS
from anarchic.page.stream import Stream
from anarchic.report.picture import Make, pictures
from anarchic.server.live_page import file_named
from anarchic.server.origin import Origins
from anarchic.server.refusals import Refusal
from anarchic.server.sending import Copies, readers

HOST = "127.0.0.1"


def view(
    place: str | os.PathLike[str], *, port: int = 0, told: Callable[[str], object] = print
) -> None:
    """Serve the page of the run in a directory or a store until Ctrl-C.

    ``told`` hears its address once it can be opened. Port 0 is any that is free.
    """
    with pictures(place) as make, listening(port) as found:
        config = uvicorn.Config(
            view_app(make), lifespan="on", log_level="warning", server_header=False,
            timeout_graceful_shutdown=2,
        )  # fmt: skip
        told(f"http://{HOST}:{found.getsockname()[1]}/")
        asyncio.run(uvicorn.Server(config).serve(sockets=[found]))


def view_app(make: Make) -> Starlette:
    """The application: the page's files, and the stream of pictures."""
    stream = Stream(make, failed=_tell)
    origins, copies = Origins(HOST, any_host=False), Copies(readers())

    async def file(request: Request) -> Response:
        origins.check(request.headers)
        return await file_named(request.path_params.get("name", "index.html"), request, copies)

    async def live(request: Request) -> Response:
        origins.check(request.headers)
        headers = {**HEADERS, "cache-control": "no-store"}
        return StreamingResponse(stream.watch(), media_type="text/event-stream", headers=headers)

    async def refused(request: Request, refusal: Exception) -> Response:
        assert isinstance(refusal, Refusal)
        return Response(refusal.body(), refusal.status, refusal.headers)

    async def missing(request: Request, error: Exception) -> Response:
        told = f"There is no {request.scope['path']} here."
        return await refused(request, Refusal(404, "not_found", told, "Open / instead."))

    async def wrong_method(request: Request, error: Exception) -> Response:
        told = f"{request.method} is not for {request.scope['path']}."
        answer = await refused(request, Refusal(405, "wrong_method", told, "Use GET."))
        answer.headers["allow"] = "GET"
        return answer

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        stream.close()

    routes = [Route(path, file, methods=["GET"]) for path in ("/", "/page/{name}")]
    seen = Route("/v1/live", live)
    seen.methods = {"GET"}  # HEAD would never end
    app = Starlette(routes=[*routes, seen], lifespan=lifespan)
    app.router.redirect_slashes = False  # they would go to the request's own Host header
    app.add_exception_handler(Refusal, refused)
    app.add_exception_handler(404, missing)
    app.add_exception_handler(405, wrong_method)
    return app


def _tell(error: BaseException) -> None:
    sys.stderr.write(f"The picture cannot be made now: {str(error) or repr(error)}\n")


def listening(port: int) -> socket.socket:
    """A socket on a port of this machine; 0 is any that is free."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
    except OSError as error:
        found.close()
        raise ConfigError(
            f"Cannot listen on port {port}: {error.strerror}. Choose another --port, or leave it "
            "out for any that is free."
        ) from error
    return found
