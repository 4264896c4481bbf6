"""Requests to a server, sent again until there is an answer that can be used."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from itertools import count
from random import Random
from typing import Any, TypeVar, final

import httpx

from anarchic.core.names import token_owner
from anarchic.core.reading import printable, reason
from anarchic.errors import ConfigError, WorkerError
from anarchic.worker import tls
from anarchic.worker.connection import PAUSED, Connection, Retry, RetryableError, refusal
from anarchic.worker.exchange import Exchange, Reply
from anarchic.worker.log import log_event
from anarchic.worker.policy import WorkerClock
from anarchic.worker.servers import Servers
from anarchic.worker.token import read_token

T = TypeVar("T")

RETRY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
TOO_SLOW, SLOW_TRIES = frozenset({"too_slow", "http_408"}), 3  # this many in a row: a slow line
FASTER = (
    "The line is too slow for the server: send narrower numbers (dtype F16 or BF16), or ask its "
    "operator for a lower --least-rate."
)
NOTICED_S = 10.0  # by then every server knows a new token
FULL = "too_many_updates"  # the code of a share of the next step that is used up
LOOK_S = 0.02  # after which to look for that step; each pause is twice as long as the last
LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})


class Token(httpx.Auth):
    """Adds the token to every request, and shows it in no log line, repr or traceback.

    Instead of the token, the file that holds it may be given; it is then read again by ``renew``.
    """

    def __init__(self, token: str | os.PathLike[str]) -> None:
        self._file = None if isinstance(token, str) else token
        text = token if isinstance(token, str) else read_token(token)
        owner = token_owner(text)
        if owner is None:
            raise ConfigError("A token has the form NAME.SECRET, on one line; this one has not.")
        self.worker = owner
        self._header = f"Bearer {text}"

    @property
    def remedy(self) -> str | None:
        """What to do once it has expired, while the worker waits; None where waiting is no use."""
        if self._file is None:
            return None
        return f"Write the new token to {self._file}: the worker then goes on with it."

    def renew(self) -> bool:
        """Whether the file holds another token of the same worker by now, which is then used."""
        if self._file is None:
            return False
        try:
            text = read_token(self._file)
        except (OSError, ConfigError) as error:
            log_event("token_unreadable", logging.WARNING, reason=reason(error))
            return False
        if token_owner(text) != self.worker or self._header == f"Bearer {text}":
            return False
        self._header = f"Bearer {text}"
        log_event("token_renewed", worker=self.worker)
        return True

    def auth_flow(self, request: httpx.Request) -> Any:  # a generator of requests
        request.headers["Authorization"] = self._header
        yield request


@final
class Channel:
    """Sends requests to one of the servers, and sends them again after failures that may pass.

    ``look`` pulls, and says whether there was a new version. It is called before an update goes
    to a server that may have another run, and while an update has to wait for a step.
    """

    def __init__(
        self,
        servers: Servers,
        token: Token | None,
        connection: Connection,
        *,
        clock: WorkerClock,
        rng: Random,
        look: Callable[[], bool] = lambda: False,
    ) -> None:
        self.servers, self._look = servers, look
        self._connection, self._token = connection, token
        self._clock, self._rng = clock, rng
        self._renewed_s = -math.inf  # when another token was found in its file
        self.stopping = False
        self._exchange: Exchange | None = None
        self._streams: list[Any] = []  # of httpx: what the last connection is read from
        for url in servers.all if token is not None else ():
            if url.scheme == "http" and url.host not in LOCAL:
                log_event("token_in_clear", logging.WARNING, server=str(url), remedy="Use https.")
        try:
            proxy = None if connection.proxy is None else httpx.Proxy(connection.proxy)
        except (ValueError, httpx.InvalidURL) as error:  # not shown: it may hold a password
            raise ConfigError("The proxy's URL begins with http:// or https://.") from error
        self._http = httpx.Client(
            base_url=servers.url,
            auth=token,
            verify=connection.tls() if connection.transport is None else True,
            proxy=proxy,
            timeout=connection.timeout_s,
            transport=connection.transport,
            headers={"Accept-Encoding": "identity"},
        )

    def stop(self) -> None:
        """Retry nothing, and give up the present request soon; may be called from anywhere."""
        self.stopping = True
        if self._exchange is not None:
            self._exchange.stop()

    def ask(
        self,
        request: tuple[str, str],
        read: Callable[[Reply], T],
        *,
        retry: Retry,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> T:
        """Send the same request until ``read`` accepts the answer, or ``retry`` allows no more."""
        method, path = request
        slow = 0  # answers in a row that the request came too slowly
        about = {"headers": headers, "content": content}
        for failures in count():
            try:
                return self._round(request, read, about)
            except RetryableError as failure:
                code, why, retry_after_s = failure.code, str(failure), failure.retry_after_s
            # Outside the block, so that neither this error nor Ctrl-C shows the chain of httpx.
            slow = slow + 1 if code in TOO_SLOW else 0
            if slow == SLOW_TRIES:
                log_event("too_slow", logging.WARNING, path=path, remedy=FASTER)
            given_up = retry.tries is not None and failures + 1 >= retry.tries
            if not (given_up or self.stopping):
                # The server says how long to wait in a pause; nothing is wrong with it.
                others = 0 if code == PAUSED else failures
                wait_s = retry.wait_s(others, retry_after_s, self._rng)
                facts = {"code": code, "reason": why, "wait_s": wait_s}
                log_event("retry", logging.WARNING, path=path, **facts)
                wait = self._wait_for_step if code == FULL else self._clock.sleep
                wait(wait_s)
            if given_up or self.stopping:
                asked = " or ".join(f"{str(url).rstrip('/')}/{path}" for url in self.servers.all)
                raise WorkerError(
                    f"{method} {asked} failed {failures + 1} times, last with: {why} "
                    f"{FASTER if slow >= SLOW_TRIES else 'Try again later.'}",
                    code,
                )
        raise AssertionError("unreachable: count() has no end")

    def _wait_for_step(self, most_s: float) -> None:
        """Look for a new version, ever less often, and wait ``most_s`` at most."""
        end_s, pause_s = self._clock.elapsed_s() + most_s, LOOK_S
        while not self.stopping and (left_s := end_s - self._clock.elapsed_s()) > 0:
            self._clock.sleep(min(pause_s, left_s))
            pause_s *= 2
            if self._stepped():
                return

    def _stepped(self) -> bool:
        try:
            return self._look()
        except (RetryableError, WorkerError):  # sending the update again will tell
            return False

    def _round(
        self, request: tuple[str, str], read: Callable[[Reply], T], about: Mapping[str, Any]
    ) -> T:
        """Ask the servers in turn, beginning with the one in use, until one answers."""
        for left in reversed(range(len(self.servers.all))):
            try:
                if about["content"] is not None and not self.servers.confirmed:
                    self._look()
                return self.once(request, read, **about)
            except RetryableError as failure:
                if failure.here or self.stopping or len(self.servers.all) == 1:
                    raise
                self.servers.next()
                self._http.base_url = self.servers.url
                if not left:
                    raise
                facts = {"code": failure.code, "reason": str(failure)}
                log_event("next_server", logging.WARNING, server=str(self.servers.url), **facts)
        raise AssertionError("unreachable: the last failure is raised")

    def once(
        self,
        request: tuple[str, str],
        read: Callable[[Reply], T],
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> T:
        """Send a request once, to the server in use."""
        message = self._http.build_request(*request, headers=headers, content=content)
        return self._attempt(message, read)

    def _attempt(self, message: httpx.Request, read: Callable[[Reply], T]) -> T:
        exchange = self._exchange = Exchange(self._http, message, self._streams)
        if self.stopping:
            exchange.stop()
        try:
            answer = exchange.answer(self._connection)
        except httpx.RequestError as error:
            self._check_certificate(error)
            if (told := tls.not_valid_now(error)) is not None:
                raise RetryableError("certificate", told) from error
            raise RetryableError("unreachable", _why(error)) from error
        if answer.status_code == 401 and self._token is not None:
            if self._token.renew():
                self._renewed_s = self._clock.elapsed_s()
                return self._attempt(message, read)
            self._check_token(answer, self._token)
        if answer.status_code in RETRY_STATUSES:
            wait_s = self._retry_after_s(answer.headers.get("Retry-After", ""))
            code, told = refusal(answer)
            here = answer.status_code < 500 or code == PAUSED
            raise RetryableError(code, told, wait_s, here=here)
        return read(answer)

    def _check_token(self, answer: Reply, token: Token) -> None:
        """Try again where another token may come, or the server may not know this one yet."""
        code, told = refusal(answer)
        if code == "expired" and token.remedy is not None:
            wait_s = self._retry_after_s(answer.headers.get("Retry-After", ""))
            raise RetryableError(code, f"{told} {token.remedy}", wait_s, here=True)
        if self._clock.elapsed_s() - self._renewed_s < NOTICED_S:
            raise RetryableError(code, told, 1.0, here=True)

    def close(self) -> None:
        self._http.close()

    def certificate(self) -> Mapping[str, Any]:
        """What the server showed on the last connection; nothing without TLS."""
        tls_of = [stream.get_extra_info("ssl_object") for stream in self._streams]
        return next((found.getpeercert() for found in tls_of if found is not None), {})

    def _retry_after_s(self, text: str) -> float:
        """Retry-After: seconds, or a date."""
        try:
            if re.fullmatch(r"[\d.]+", text):
                return float(text)
            return parsedate_to_datetime(text).timestamp() - self._clock.now_s()
        except (ValueError, TypeError, OverflowError, IndexError):  # from whatever is no date
            return 0.0

    def _check_certificate(self, error: httpx.RequestError) -> None:
        """Where one side refuses the other's certificate, the server is not asked again."""
        if (why := tls.refusal_of(error)) is not None:
            raise WorkerError(
                f"{self.servers.url} cannot be used, since {why}.", "certificate"
            ) from None


def _why(error: httpx.RequestError) -> str:
    told = f"{type(error).__name__}: {printable(str(error), most=200).rstrip('.')}."
    return told + tls.hint(error, error.request.url.scheme)
