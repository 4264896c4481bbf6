"""The routes: each parses, makes one call, and encodes the answer."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from anarchic.errors import AnarchicError
from anarchic.server.bodies import Disconnected
from anarchic.server.openapi import MOST_EVALUATIONS, OPENAPI
from anarchic.server.origin import Origins, check_type
from anarchic.server.published import PublishedModel
from anarchic.server.refusals import Refusal, length_required, refusal_of
from anarchic.server.sending import PIECE
from anarchic.server.service import Service
from anarchic.server.slots import key_of

HEARTBEAT_S = 15.0
EVALUATIONS = 100  # shown by default


def make_app(service: Service, origins: Origins | None = None) -> Starlette:
    """The ASGI application of one server process, which goes by the names in ``origins``."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            await service.start()
        except AnarchicError as error:
            app.state.not_started = str(error)
            raise
        try:
            yield
        finally:
            await service.stop()

    routes = [
        Route("/v1/model", _Answering(service, newest_model), methods=["GET"]),
        Route("/v1/runs/{run}/models/{version}", _Answering(service, model), methods=["GET"]),
        Route("/v1/updates", _Answering(service, push), methods=["POST"]),
        Route("/v1/status", _Answering(service, status), methods=["GET"]),
        Route("/v1/evaluations", _Answering(service, evaluations), methods=["GET"]),
        Route("/v1/events", _Answering(service, events), methods=["GET"]),
        Route("/v1/openapi.json", _Answering(service, openapi), methods=["GET"]),
        Route("/metrics", _Answering(service, metrics), methods=["GET"]),
        Route("/healthz", _Answering(service, health), methods=["GET"]),
    ]
    next(r for r in routes if r.path == "/v1/events").methods = {"GET"}  # HEAD would never end
    app = _App(routes=routes, lifespan=lifespan)
    app.state.origins = origins or Origins(any_host=not service.settings.open_pull)
    app.router.redirect_slashes = False  # they would go to the request's own Host header
    app.add_exception_handler(404, partial(_no_such_page, service))
    app.add_exception_handler(405, partial(_no_such_method, service))
    return app


class _App(Starlette):
    """Tells why it did not start in a sentence, where Starlette would send a trace."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            send = partial(self._told, send)
        await super().__call__(scope, receive, send)

    async def _told(self, send: Send, message: Message) -> None:
        if "message" in message and hasattr(self.state, "not_started"):
            message = {**message, "message": self.state.not_started}
        await send(message)


class _Answering:
    """An endpoint whose refusals become JSON; the endpoint itself reads the request's body."""

    def __init__(
        self, service: Service, answer: Callable[[Service, Request], Awaitable[Response]]
    ) -> None:
        self._service, self._answer = service, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            if self._answer is not health:  # which a probe may ask by any name
                request.app.state.origins.check(_headers(request))
            response = await self._answer(self._service, request)
        except Disconnected:
            return
        except Refusal as refusal:
            response = self._refused(refusal, request)
        except AnarchicError as error:
            translated = refusal_of(error)
            if translated.status >= 500:  # the worker is told less than the operator
                self._service.log("error", path=scope["path"], reason=str(error))
            response = self._refused(translated, request)
        await response(scope, receive, send)

    def _refused(self, refusal: Refusal, request: Request) -> Response:
        self._service.metrics.refused(refusal.code)
        _log_refusal(self._service, refusal, request)
        headers = {"content-type": "application/json"}
        if refusal.retry_after_s is not None:
            headers["retry-after"] = str(max(1, round(refusal.retry_after_s)))
        if refusal.status == 401:
            headers["www-authenticate"] = "Bearer"
        return Response(refusal.body(), refusal.status, headers)


class _ModelResponse(Response):
    """A model, sent in pieces: between them uvicorn waits until the reader has taken most of it.

    Sent as a whole it would be in memory once more per reader, encrypted, under TLS.
    """

    def __init__(
        self, model: PublishedModel, headers: Mapping[str, str], end: Callable[[], None]
    ) -> None:
        super().__init__(memoryview(model.body), 200, headers, "application/octet-stream")
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        size = len(self.body)
        try:
            await send({**start, "headers": self.raw_headers})
            for at in range(0, size, PIECE):
                piece = {"body": self.body[at : at + PIECE], "more_body": at + PIECE < size}
                await send({"type": "http.response.body", **piece})
        finally:
            self._end()


def _headers(request: Request) -> Mapping[str, str]:
    """All headers, decoded once: Starlette goes through the whole list for every name."""
    headers: dict[str, str] | None = request.scope.get("headers_by_name")
    if headers is None:
        pairs = reversed(request.scope["headers"])  # of several with one name the first counts
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs}
        request.scope["headers_by_name"] = headers
    return headers


def _hang_up(request: Request) -> Callable[[], None]:
    """Closes the connection; ``BoundedProtocol`` says how."""
    hang_up: Callable[[], None] = request.scope.get("hang_up", lambda: None)
    return hang_up


async def newest_model(service: Service, request: Request) -> Response:
    puller = _puller(service, request)
    newest = service.published.newest
    if not _is_known(request, newest):
        newest = service.sending.newest(puller, newest)
    return _pulled(service, request, puller, newest, "no-cache")


async def model(service: Service, request: Request) -> Response:
    puller = _puller(service, request)
    run, version = request.path_params["run"], request.path_params["version"]
    if run != service.run or not re.fullmatch(r"0|[1-9][0-9]{0,18}", version):
        told = "There is no such run or version here."
        raise Refusal(404, "not_found", told, "See /v1/status.")
    found, epoch = await service.published.version(int(version)), request.query_params.get("epoch")
    if found is None or epoch not in (None, found.epoch):
        told = f"Version {version} does not exist or is no longer kept."
        raise Refusal(404, "not_found", told, "Pull /v1/model instead.")
    # Without its epoch a version can change: a run that is restored makes its later ones anew.
    cache = "no-cache" if epoch is None else "max-age=31536000, immutable"
    return _pulled(service, request, puller, found, cache)


def _puller(service: Service, request: Request) -> str:
    return service.access.may_pull(request.headers.get("authorization"), _address(request))


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _log_refusal(service: Service, refusal: Refusal, request: Request) -> None:
    service.refusals.add(refusal, _address(request), _headers(request).get("authorization"))


def _pulled(
    service: Service, request: Request, puller: str, model: PublishedModel, cache: str
) -> Response:
    who = "public" if service.settings.public_model else "private"
    headers = {
        "etag": model.etag,
        "cache-control": f"{who}, {cache}",
        "x-anarchic-version": str(model.version),
    }
    if _is_known(request, model):
        return Response(status_code=304, headers=headers)
    end = service.sending.begin(puller, model, _hang_up(request))
    return _ModelResponse(model, headers, end)


def _is_known(request: Request, model: PublishedModel) -> bool:
    known = request.headers.get("if-none-match", "")
    return model.etag in (tag.strip().removeprefix("W/") for tag in known.split(","))


async def push(service: Service, request: Request) -> Response:
    headers = _headers(request)
    check_type(headers)
    pusher = service.access.may_push(headers.get("authorization"), _address(request))
    length = _length(headers, service.most_body_bytes)
    receipt = await service.bodies.read(
        request.receive,
        length,
        key_of(pusher.worker, pusher.address),
        check=partial(service.collector.check_beginning, length=length, worker=pusher.worker),
        submit=partial(service.collector.submit, pusher=pusher),
        came=request.scope.get("came", False),
    )
    service.metrics.received(receipt.outcome, length)
    answer = {
        "status": receipt.outcome,
        "version": service.published.newest.version,
        "buffered": service.pending.count,
    }
    return JSONResponse(answer, 202 if receipt.outcome == "accepted" else 200)


def _length(headers: Mapping[str, str], most: int) -> int:
    given = headers.get("content-length", "")
    if "transfer-encoding" in headers or not re.fullmatch(r"[0-9]{1,20}", given):
        raise length_required()
    if int(given) > most:
        told = f"The body has {given} bytes, this model's updates have at most {most}."
        remedy = "Send the direction once, as float32 or narrower."
        raise Refusal(413, "too_large", told, remedy)
    return int(given)


async def status(service: Service, request: Request) -> Response:
    return JSONResponse(service.status())


async def evaluations(service: Service, request: Request) -> Response:
    # As for a pull: the answer is read from the store, which costs something.
    _puller(service, request)
    asked = request.query_params.get("limit", str(EVALUATIONS))
    if not (re.fullmatch(r"[1-9][0-9]{0,5}", asked) and int(asked) <= MOST_EVALUATIONS):
        message = f"The limit must be a whole number, 1 to {MOST_EVALUATIONS}."
        raise Refusal(400, "malformed", message, "Ask for fewer.")
    return JSONResponse({"evaluations": await service.evaluations(int(asked))})


async def openapi(service: Service, request: Request) -> Response:
    return JSONResponse(OPENAPI)


async def metrics(service: Service, request: Request) -> Response:
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


async def health(service: Service, request: Request) -> Response:
    problem = service.problem()
    if problem is None:
        return JSONResponse({"status": "ok"})
    return JSONResponse({"status": "unwell", "message": problem}, 503)


class _EventStream(StreamingResponse):
    """A stream of events, counted until it ends, however it ends."""

    def __init__(self, service: Service, request: Request) -> None:
        headers = {"cache-control": "no-store"}
        super().__init__(_events(service), media_type="text/event-stream", headers=headers)
        worker = service.access.shown(request.headers.get("authorization"))
        key = key_of(worker, _address(request))
        self._streams = service.streams
        self._place = service.streams.take(key, 1, _hang_up(request))
        self._place.ready = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.end(self._place)


async def _events(service: Service) -> AsyncIterator[bytes]:
    seen = -1
    while not service.published.closed:
        version = service.published.newest.version
        if version != seen:
            seen = version
            data = json.dumps(service.status())
            yield f"id: {version}\nevent: version\ndata: {data}\n\n".encode()
        elif not await service.published.changed(seen, HEARTBEAT_S):
            yield b": still here\n\n"


async def events(service: Service, request: Request) -> Response:
    """Server-sent events: the status whenever a version is published."""
    return _EventStream(service, request)


async def _no_such_page(service: Service, request: Request, error: Exception) -> Response:
    told = f"There is no {request.scope['path']} here."
    refusal = Refusal(404, "not_found", told, "See docs/protocol.md.")
    _log_refusal(service, refusal, request)
    return Response(refusal.body(), 404, media_type="application/json")


async def _no_such_method(service: Service, request: Request, error: Exception) -> Response:
    allow = (getattr(error, "headers", None) or {}).get("Allow", "")
    message = f"{request.method} is not for {request.scope['path']}."
    refusal = Refusal(405, "wrong_method", message, f"Use {allow}.")
    _log_refusal(service, refusal, request)
    return Response(refusal.body(), 405, {"allow": allow}, "application/json")
