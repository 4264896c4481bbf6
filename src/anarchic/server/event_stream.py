"""Server-sent events: a stream that counts among those that a server has at the same time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from anarchic.server.answering import address_of, hang_up_of, log_refusal
from anarchic.server.refusals import Refusal
from anarchic.server.service import Service
from anarchic.server.slots import key_of


class EventStream(StreamingResponse):
    """A stream of events, counted until it ends, however it ends."""

    def __init__(
        self, service: Service, request: Request, told: AsyncGenerator[bytes, None]
    ) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(
            _allowed(service, request, told), media_type="text/event-stream", headers=headers
        )
        worker = service.access.shown(request.headers.get("authorization"))
        key = key_of(worker, address_of(request))
        self._streams = service.streams
        self._place = service.streams.take(key, 1, hang_up_of(request), run=service.name)
        self._place.ready = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.end(self._place)


async def _allowed(
    service: Service, request: Request, told: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """Events for as long as the request would be allowed: its token may be revoked or expire."""
    async with aclosing(told):
        async for event in told:
            try:
                request.scope["check"](request)
            except Refusal as refusal:
                log_refusal(service, refusal, request)
                return
            yield event
