"""The application of a server of several runs: finds the run that a path names, in turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from anarchic.server.live_page import file_named
from anarchic.server.many import Runs
from anarchic.server.openapi import openapi_of_runs
from anarchic.server.origin import Origins
from anarchic.server.paths import split, within_run
from anarchic.server.refusals import Refusal
from anarchic.server.run_turns import RUN

REMEDY = "Name the run: give the command --run NAME, or ask for /v1/runs/NAME/..."


def make_runs_app(
    runs: Runs, origins: Origins, *, operators: bool = False, admin: bool = False
) -> Starlette:
    """The ASGI application of one server process of several runs.

    With ``operators`` metrics are shown to them alone. The one for ``admin`` hands requests to the
    operators' application of each run; whoever serves workers starts and stops the runs.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await runs.start()
        try:
            yield
        finally:
            await runs.stop()

    async def probe(asked: Callable[[], tuple[bool, Any]], request: Request) -> Response:
        well, told = asked()  # a probe may come by any name
        return JSONResponse(told, 200 if well else 503)

    async def metrics(request: Request) -> Response:
        origins.check(request.headers)
        told = runs.metrics(request.headers.get("authorization"), every=not operators)
        return Response(told, media_type="text/plain; version=0.0.4")

    async def openapi(request: Request) -> Response:
        origins.check(request.headers)
        return JSONResponse(openapi_of_runs())

    async def file(request: Request) -> Response:
        origins.check(request.headers)
        return await file_named(request.path_params.get("name", "index.html"), request, runs.copies)

    routes = [
        Route("/", file, methods=["GET"]),
        Route("/page/{name}", file, methods=["GET"]),
        Route("/healthz", partial(probe, runs.health), methods=["GET"]),
        Route("/readyz", partial(probe, runs.ready), methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        *([] if admin else [Route("/v1/openapi.json", openapi, methods=["GET"])]),
    ]
    app = _RunsApp(routes=routes, lifespan=None if admin else lifespan)
    app.runs, app.admin = runs, admin
    app.router.redirect_slashes = False  # they would go to the request's own Host header
    app.add_exception_handler(Refusal, partial(_refused, runs))
    app.add_exception_handler(404, partial(_no_such_page, runs))
    app.add_exception_handler(405, partial(_no_such_method, runs))
    return app


class _RunsApp(Starlette):
    """Hands requests that name a run to the application of that run."""

    runs: Runs
    admin: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = split(scope["path"])[0] if scope["type"] == "http" else None
        if name is None:
            await super().__call__(scope, receive, send)
            return
        hosted = self.runs.find(name)
        try:
            await self.runs.turns.take("" if hosted is None else hosted.name)
            if hosted is None:
                told = f"There is no run {name[:48]!r} here."
                raise Refusal(404, "not_found", told, "Ask the operator for the run's name.")
            app, service = hosted.admin if self.admin else hosted.app, hosted.service
            if app is None or service is None:
                told = f"The run {hosted.name!r} cannot be served now."
                remedy = "Keep the update and send it again later."
                raise Refusal(503, "store_unavailable", told, remedy, 5.0)
        except Refusal as refusal:
            answer = await _refused(self.runs, Request(scope, receive), refusal)
            await answer(scope, receive, send)
            return
        RUN.set(hosted.name)  # the threads that the request needs are those of its run
        await app(within_run(scope, service.run), receive, send)


async def _refused(runs: Runs, request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refusal)
    address = request.client.host if request.client is not None else ""
    runs.refusals.add(refusal, address)
    return Response(refusal.body(), refusal.status, refusal.headers)


async def _no_such_page(runs: Runs, request: Request, error: Exception) -> Response:
    told = f"There is no {request.scope['path']} in a server of several runs."
    return await _refused(runs, request, Refusal(404, "not_found", told, REMEDY))


async def _no_such_method(runs: Runs, request: Request, error: Exception) -> Response:
    allow = (getattr(error, "headers", None) or {}).get("Allow", "")
    message = f"{request.method} is not for {request.scope['path']}."
    refused = await _refused(runs, request, Refusal(405, "wrong_method", message, f"Use {allow}."))
    refused.headers["allow"] = allow
    return refused
