"""The routes: each parses, makes one call, and encodes the answer."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from anarchic.errors import AnarchicError
from anarchic.server.answering import (
    Answering,
    address_of,
    certificate_names,
    hang_up_of,
    headers_of,
    log_refusal,
)
from anarchic.server.event_stream import EventStream
from anarchic.server.joining import join_routes
from anarchic.server.listing import workers
from anarchic.server.live_page import live, page
from anarchic.server.openapi import MOST_EVALUATIONS, OPENAPI
from anarchic.server.origin import Origins, check_type
from anarchic.server.paths import split, within_run
from anarchic.server.published import PublishedModel
from anarchic.server.refusals import Refusal, busy, length_required
from anarchic.server.sending import InPieces
from anarchic.server.service import Service
from anarchic.server.slots import key_of
from anarchic.server.steering_routes import STEERING, revoking, steering

HEARTBEAT_S = 15.0
EVALUATIONS = 100  # shown by default
PUBLIC_STATUS = ("run", "version", "rule", "state", "m", "parameters")  # for workers


def make_app(service: Service, origins: Origins | None = None, *, brief: bool = False) -> Starlette:
    """The ASGI application of one server process, which goes by the names in ``origins``.

    If it is ``brief``, only operators see metrics and the whole status here.
    """

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
        Route("/v1/model", Answering(service, newest_model), methods=["GET"]),
        Route("/v1/runs/{run}/models/{version}", Answering(service, model), methods=["GET"]),
        Route("/v1/updates", Answering(service, push), methods=["POST"]),
        Route("/v1/status", Answering(service, partial(status, brief=brief)), methods=["GET"]),
        Route("/v1/token", Answering(service, token), methods=["GET"]),
        Route("/v1/workers", Answering(service, workers, operators=True), methods=["GET"]),
        Route("/v1/evaluations", Answering(service, evaluations), methods=["GET"]),
        Route("/v1/commands", Answering(service, steering, operators=True), methods=STEERING),
        Route("/v1/revocations", Answering(service, revoking, operators=True), methods=["POST"]),
        Route("/v1/events", Answering(service, partial(events, brief=brief)), methods=["GET"]),
        *_page(service, operators=True),
        Route("/v1/openapi.json", Answering(service, openapi), methods=["GET"]),
        Route("/metrics", Answering(service, metrics, operators=brief), methods=["GET"]),
        Route("/healthz", Answering(service, health, probe=True), methods=["GET"]),
        Route("/readyz", Answering(service, ready, probe=True), methods=["GET"]),
    ]
    next(r for r in routes if r.path == "/v1/events").methods = {"GET"}  # HEAD would never end
    routes += join_routes(service) if service.settings.join else []
    origins = origins or Origins(any_host=not service.settings.open_pull)
    return _finished(_App(routes=routes, lifespan=lifespan), service, origins)


def make_admin_app(service: Service, origins: Origins, *, tokens: bool) -> Starlette:
    """What operators see, with ``tokens`` only by theirs. Probes need none."""
    seen = {"/metrics": metrics, "/v1/status": status, "/v1/workers": workers}
    routes = [
        Route(path, Answering(service, answer, operators=tokens), methods=["GET"])
        for path, answer in seen.items()
    ]
    routes += [
        Route(path, Answering(service, answer, probe=True), methods=["GET"])
        for path, answer in {"/healthz": health, "/readyz": ready}.items()
    ]
    # Whoever changes the run needs a token even where others have an account on the machine.
    answer = Answering(service, steering, operators=True)
    routes.append(Route("/v1/commands", answer, methods=STEERING))
    answer = Answering(service, revoking, operators=True)
    routes.append(Route("/v1/revocations", answer, methods=["POST"]))
    routes += _page(service, operators=tokens)
    return _finished(_App(routes=routes), service, origins)


def _page(service: Service, *, operators: bool) -> list[Route]:
    """The live page; what it shows is for operators alone, if they need tokens here."""
    shown = Answering(service, page)
    told = Answering(service, live, operators=operators)
    routes = [Route(path, shown, methods=["GET"]) for path in ("/", "/page/{name}")]
    stream = Route("/v1/live", told)
    stream.methods = {"GET"}  # HEAD would never end
    return [*routes, stream]


def _finished(app: Starlette, service: Service, origins: Origins) -> Starlette:
    app.state.origins = origins
    app.state.run = service.run
    app.router.redirect_slashes = False  # they would go to the request's own Host header
    app.add_exception_handler(404, partial(_no_such_page, service))
    app.add_exception_handler(405, partial(_no_such_method, service))
    return app


class _App(Starlette):
    """Tells why it did not start in a sentence, where Starlette would send a trace.

    A path without variables is looked up: Starlette would try the routes one after another, and
    wrap the request and its answer twice: 3 % of the instructions that a small update takes.
    """

    def __init__(self, routes: Sequence[Route], **named: Any) -> None:
        super().__init__(routes=routes, **named)
        plain = [route for route in routes if "{" not in route.path]
        self._answers = {(m, route.path): route.app for route in plain for m in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await super().__call__(scope, receive, partial(self._told, send))
            return
        if split(scope["path"])[0] == self.state.run:  # its id, by which paths may name it
            scope = within_run(scope, self.state.run)
        answer = self._answers.get((scope["method"], scope["path"]))
        if answer is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        await answer(scope, receive, send)  # of an error that nobody expected uvicorn tells

    async def _told(self, send: Send, message: Message) -> None:
        if "message" in message and hasattr(self.state, "not_started"):
            message = {**message, "message": self.state.not_started}
        await send(message)


async def newest_model(service: Service, request: Request) -> Response:
    puller = _puller(service, request)
    newest = service.published.newest
    if not _is_known(request, newest):
        newest = service.sending.newest(puller, newest)
    service.pulled(puller, request.headers.get("authorization"), newest.version)
    return _pulled(service, request, puller, newest, "no-cache")


async def model(service: Service, request: Request) -> Response:
    puller = _puller(service, request)
    run, version = request.path_params["run"], request.path_params["version"]
    if run != service.run or not re.fullmatch(r"0|[1-9][0-9]{0,18}", version):
        told = "There is no such run or version here."
        raise Refusal(404, "not_found", told, "See /v1/status.")
    found, epoch = await service.published.version(int(version)), request.query_params.get("epoch")
    if found is None or epoch not in (None, found.epoch):
        raise await service.not_kept(int(version))
    # Without its epoch a version can change: a run that is restored makes its later ones anew.
    cache = "no-cache" if epoch is None else "max-age=31536000, immutable"
    return _pulled(service, request, puller, found, cache)


def _puller(service: Service, request: Request) -> str:
    return service.access.may_pull(request.headers.get("authorization"), address_of(request))


def _pulled(
    service: Service, request: Request, puller: str, model: PublishedModel, cache: str
) -> Response:
    who = "public" if service.settings.public_model else "private"
    headers = {
        "etag": model.etag,
        "cache-control": f"{who}, {cache}",
        "x-anarchic-version": str(model.version),
        "x-anarchic-state": service.steering.condition,
    }
    if _is_known(request, model):
        return Response(status_code=304, headers=headers)
    end = service.sending.begin(puller, model, hang_up_of(request))
    return InPieces(model.body, headers, end)


def _is_known(request: Request, model: PublishedModel) -> bool:
    known = request.headers.get("if-none-match", "")
    return model.etag in (tag.strip().removeprefix("W/") for tag in known.split(","))


async def push(service: Service, request: Request) -> Response:
    headers = headers_of(request)
    check_type(headers)
    pusher = service.access.may_push(
        headers.get("authorization"), address_of(request), certificate_names(request)
    )
    service.steering.check_open()
    length = _length(headers, service.most_body_bytes)
    receipt = await service.bodies.read(
        request.receive,
        length,
        key_of(pusher.worker, pusher.address),
        check=partial(service.collector.check_beginning, length=length, worker=pusher.worker),
        submit=partial(service.collector.submit, pusher=pusher),
        came=request.scope.get("came", False),
        allowed=partial(service.access.still_may, pusher),
        run=service.name,
    )
    service.metrics.received(receipt.outcome, length)
    service.activity.received(receipt.outcome)
    version, buffered = service.published.newest.version, service.pending.count
    # Written by hand: the encoder that JSONResponse makes for each answer costs more.
    told = f'{{"status":"{receipt.outcome}","version":{version},"buffered":{buffered}}}'
    code = 202 if receipt.outcome == "accepted" else 200
    return Response(told, code, media_type="application/json")


def _length(headers: Mapping[str, str], most: int) -> int:
    given = headers.get("content-length", "")
    if "transfer-encoding" in headers or not re.fullmatch(r"[0-9]{1,20}", given):
        raise length_required()
    if int(given) > most:
        told = f"The body has {given} bytes, this model's updates have at most {most}."
        remedy = "Send the direction once, as float32 or narrower."
        raise Refusal(413, "too_large", told, remedy)
    return int(given)


async def status(service: Service, request: Request, *, brief: bool = False) -> Response:
    if not service.published.has_one:  # operators are answered before workers are
        raise busy(1.0, "The server is starting.")
    return JSONResponse(_status(service, request, brief=brief))


def _status(service: Service, request: Request, *, brief: bool) -> dict[str, Any]:
    """All of the status, or what workers need of it where the rest is for operators."""
    told = service.status()
    if not brief:
        return told
    try:
        service.access.may_operate(headers_of(request).get("authorization"))
    except Refusal:
        return {name: told[name] for name in PUBLIC_STATUS}
    return told


async def token(service: Service, request: Request) -> Response:
    """What the token that comes with the request may do, for whoever wants to try it."""
    about = service.access.about(request.headers.get("authorization"))
    return JSONResponse(about, headers={"cache-control": "no-store"})


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


async def ready(service: Service, request: Request) -> Response:
    problem = service.unready()
    if problem is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not ready", "message": problem}, 503)


async def _events(service: Service, status: Callable[[], Any]) -> AsyncGenerator[bytes, None]:
    seen, touched = -1, service.published.touched
    while not service.published.closed:
        version, now = service.published.newest.version, service.published.touched
        if version != seen or now != touched:
            event = "version" if version != seen else "command"
            seen, touched = version, now
            data = json.dumps(status())
            yield f"id: {version}\nevent: {event}\ndata: {data}\n\n".encode()
        elif not await service.published.changed(seen, HEARTBEAT_S, touched):
            yield b": still here\n\n"


async def events(service: Service, request: Request, *, brief: bool = False) -> Response:
    """Server-sent events: the status whenever a version is published."""
    told = _events(service, partial(_status, service, request, brief=brief))
    return EventStream(service, request, told)


async def _no_such_page(service: Service, request: Request, error: Exception) -> Response:
    told = f"There is no {request.scope['path']} here."
    refusal = Refusal(404, "not_found", told, "See docs/protocol.md.")
    log_refusal(service, refusal, request)
    return Response(refusal.body(), 404, refusal.headers)


async def _no_such_method(service: Service, request: Request, error: Exception) -> Response:
    allow = (getattr(error, "headers", None) or {}).get("Allow", "")
    message = f"{request.method} is not for {request.scope['path']}."
    refusal = Refusal(405, "wrong_method", message, f"Use {allow}.")
    log_refusal(service, refusal, request)
    return Response(refusal.body(), 405, {"allow": allow, **refusal.headers})
