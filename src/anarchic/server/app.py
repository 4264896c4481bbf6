"""The routes: each parses, makes one call, and encodes the answer."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from anarchic.errors import AnarchicError
from anarchic.server.board import Posted
from anarchic.server.limits import Body, Gone
from anarchic.server.openapi import OPENAPI
from anarchic.server.refusals import (
    Refusal,
    busy,
    length_required,
    not_found,
    refusal_of,
    too_large,
)
from anarchic.server.service import Service

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

SAFETENSORS = "application/octet-stream"
HEARTBEAT_S = 15.0
MOST_STREAMS = 256  # of events, at a time


def make_app(service: Service) -> Starlette:
    """The ASGI application of one server process."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    routes = [
        Route("/v1/model", _Answering(service, newest_model), methods=["GET"]),
        Route("/v1/runs/{run}/models/{version}", _Answering(service, model), methods=["GET"]),
        Route("/v1/updates", _Answering(service, push), methods=["POST"]),
        Route("/v1/status", _Answering(service, status), methods=["GET"]),
        Route("/v1/events", _Answering(service, events), methods=["GET"]),
        Route("/v1/openapi.json", _Answering(service, openapi), methods=["GET"]),
        Route("/metrics", _Answering(service, metrics), methods=["GET"]),
        Route("/healthz", _Answering(service, health), methods=["GET"]),
    ]
    next(r for r in routes if r.path == "/v1/events").methods = {"GET"}  # HEAD would never end
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False  # to where the Host header says: a stranger's word
    app.add_exception_handler(404, _no_such_page)
    app.add_exception_handler(405, _no_such_method)
    return app


class _Answering:
    """An endpoint whose refusals become JSON. Bodies are read by the endpoint, never gathered."""

    def __init__(
        self,
        service: Service,
        answer: Callable[[Service, Request], Awaitable[Response]],
    ) -> None:
        self._service, self._answer = service, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(self._service, request)
        except Gone:
            return
        except Refusal as refusal:
            response = self._refused(refusal)
        except AnarchicError as error:
            translated = refusal_of(error)
            if translated.status >= 500:  # the worker is told less than the operator
                self._service.log("error", path=scope["path"], reason=str(error))
            response = self._refused(translated)
        await response(scope, receive, send)

    def _refused(self, refusal: Refusal) -> Response:
        self._service.metrics.refused(refusal.code)
        headers = {"content-type": "application/json"}
        if refusal.retry_after_s is not None:
            headers["retry-after"] = str(max(1, round(refusal.retry_after_s)))
        if refusal.status == 401:
            headers["www-authenticate"] = "Bearer"
        return Response(refusal.body(), refusal.status, headers)


async def newest_model(service: Service, request: Request) -> Response:
    service.may_pull(request.headers.get("authorization"))
    posted = service.board.newest
    cache = "public, no-cache" if service.settings.public_model else "private, no-cache"
    return _model_response(request, posted, cache)


async def model(service: Service, request: Request) -> Response:
    service.may_pull(request.headers.get("authorization"))
    run, version = request.path_params["run"], request.path_params["version"]
    if run != service.board.run or not re.fullmatch(r"0|[1-9][0-9]{0,18}", version):
        raise not_found("There is no such run or version here.", "See /v1/status.")
    posted = await service.version(int(version))
    if posted is None:
        raise not_found(
            f"Version {version} does not exist or is no longer kept.", "Pull /v1/model instead."
        )
    kind = "public" if service.settings.public_model else "private"
    return _model_response(request, posted, f"{kind}, max-age=31536000, immutable")


def _model_response(request: Request, posted: Posted, cache: str) -> Response:
    headers = {
        "etag": posted.etag,
        "cache-control": cache,
        "accept-ranges": "bytes",
        "x-anarchic-version": str(posted.version),
    }
    known = request.headers.get("if-none-match", "")
    if posted.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return Response(status_code=304, headers=headers)
    wanted = request.headers.get("range")
    if wanted is not None and request.headers.get("if-range") in (None, posted.etag):
        return _part(posted, wanted, headers)
    return Response(posted.body, media_type=SAFETENSORS, headers=headers)


def _part(posted: Posted, wanted: str, headers: dict[str, str]) -> Response:
    size = len(posted.body)
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", wanted.strip())
    if match is None or match.groups() == ("", ""):  # several ranges, or nonsense: all of it
        return Response(posted.body, media_type=SAFETENSORS, headers=headers)
    first, last = match.groups()
    if first == "":
        start, end = max(0, size - int(last)), size - 1
    else:
        start, end = int(first), min(size - 1, int(last)) if last else size - 1
    if start > end:
        return Response(status_code=416, headers={**headers, "content-range": f"bytes */{size}"})
    return Response(
        posted.body[start : end + 1],
        206,
        {**headers, "content-range": f"bytes {start}-{end}/{size}"},
        SAFETENSORS,
    )


async def push(service: Service, request: Request) -> Response:
    worker = service.may_push(request.headers.get("authorization"))
    length = _length(request.headers, service.most_body_bytes)
    body = Body(request.receive, length, service.settings.limits)
    await body.first_piece()
    if body.complete:
        receipt = await service.submit(await body.rest(), worker)
    else:
        async with service.places.place():
            whole = await body.rest(service.places.contended)
            receipt = await service.submit(whole, worker)
    service.metrics.received(receipt.outcome, length)
    answer = {
        "status": receipt.outcome,
        "version": service.board.newest.version,
        "buffered": service.collector.shares.total(),
    }
    return JSONResponse(answer, 202 if receipt.outcome == "accepted" else 200)


def _length(headers: Mapping[str, str], most: int) -> int:
    given = headers.get("content-length", "")
    if "transfer-encoding" in headers or not re.fullmatch(r"[0-9]{1,18}", given):
        raise length_required()
    if int(given) > most:
        raise too_large(int(given), most)
    return int(given)


async def status(service: Service, request: Request) -> Response:
    return JSONResponse(service.status())


async def openapi(service: Service, request: Request) -> Response:
    return JSONResponse(OPENAPI)


async def metrics(service: Service, request: Request) -> Response:
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


async def health(service: Service, request: Request) -> Response:
    problem = service.problem()
    if problem is None:
        return JSONResponse({"status": "ok"})
    return JSONResponse({"status": "unwell", "message": problem}, 503)


async def events(service: Service, request: Request) -> Response:
    """Server-sent events: the status whenever a version is published."""
    if service.streams >= MOST_STREAMS:  # each holds a connection for as long as it likes
        raise busy(30.0, "Too many are listening to events.")

    async def stream() -> AsyncIterator[bytes]:
        seen = -1
        service.streams += 1
        try:
            while not service.stopping.is_set():
                version = service.board.newest.version
                if version != seen:
                    seen = version
                    data = json.dumps(service.status())
                    yield f"id: {version}\nevent: version\ndata: {data}\n\n".encode()
                elif not await service.changed(seen, HEARTBEAT_S):
                    yield b": still here\n\n"
        finally:
            service.streams -= 1

    return StreamingResponse(
        stream(), media_type="text/event-stream", headers={"cache-control": "no-store"}
    )


async def _no_such_page(request: Request, error: Exception) -> Response:
    refusal = not_found(f"There is no {request.scope['path']} here.", "See docs/protocol.md.")
    return Response(refusal.body(), 404, media_type="application/json")


async def _no_such_method(request: Request, error: Exception) -> Response:
    allow = (getattr(error, "headers", None) or {}).get("Allow", "")
    message = f"{request.method} is not for {request.scope['path']}."
    refusal = Refusal(405, "wrong_method", message, f"Use {allow}.")
    return Response(refusal.body(), 405, {"allow": allow}, "application/json")
