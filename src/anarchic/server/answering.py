"""Answering a request: what is checked first, and how a refusal is told, counted and logged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from anarchic.errors import AnarchicError
from anarchic.server.bodies import Disconnected
from anarchic.server.refusals import Refusal, refusal_of
from anarchic.server.service import Service


class Answering:
    """An endpoint whose refusals become JSON; the endpoint itself reads the request's body."""

    def __init__(
        self, service: Service, answer: Callable[[Service, Request], Awaitable[Response]], *,
        operators: bool = False, probe: bool = False,
    ) -> None:  # fmt: skip
        self._service, self._answer = service, answer
        self._operators = operators  # it is for nobody else
        self._probe = probe  # which may come by any name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        scope["check"] = self._check  # without the request: a cycle would keep its body
        try:
            self._check(request)
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

    def _check(self, request: Request) -> None:
        """Refuse who may not ask; a stream asks again before each event."""
        authorization = headers_of(request).get("authorization")
        if not self._probe:
            request.app.state.origins.check(headers_of(request))
        self._service.access.check_names(authorization, certificate_names(request))
        if self._operators:
            self._service.access.may_operate(authorization)

    def _refused(self, refusal: Refusal, request: Request) -> Response:
        named = self._service.access.named(headers_of(request).get("authorization"))
        self._service.refused(refusal.code, named.get("worker") or refusal.worker)
        log_refusal(self._service, refusal, request)
        return Response(refusal.body(), refusal.status, refusal.headers)


def headers_of(request: Request) -> Mapping[str, str]:
    """All headers, decoded once: Starlette goes through the whole list for every name."""
    headers: dict[str, str] | None = request.scope.get("headers_by_name")
    if headers is None:
        pairs = reversed(request.scope["headers"])  # of several with one name the first counts
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs}
        request.scope["headers_by_name"] = headers
    return headers


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def hang_up_of(request: Request) -> Callable[[], None]:
    """Closes the connection; ``BoundedProtocol`` says how."""
    hang_up: Callable[[], None] = request.scope.get("hang_up", lambda: None)
    return hang_up


def certificate_names(request: Request) -> frozenset[str] | None:
    """The names in the worker's certificate, where they bind; ``BoundedProtocol`` reads them."""
    names: frozenset[str] | None = request.scope.get("certificate_names")
    return names


def log_refusal(service: Service, refusal: Refusal, request: Request) -> None:
    service.refusals.add(refusal, address_of(request), headers_of(request).get("authorization"))
