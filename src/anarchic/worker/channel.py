"""Requests to one server, tried again until they get an answer that means something."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from itertools import count
from os import PathLike
from random import Random
from typing import Any, TypeVar, final

import httpx

from anarchic.core.names import token_owner
from anarchic.errors import ConfigError, LinkError
from anarchic.worker.clock import Clock
from anarchic.worker.log import say

T = TypeVar("T")
Path = str | PathLike[str]

LARGEST = 1 << 30  # bytes of an answer: no store holds a larger model
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
TOO_SLOW, SLOW_TRIES = frozenset({"too_slow", "http_408"}), 3  # in a row are no accident
FASTER = (
    "The line is too slow for the server: send narrower numbers (dtype F16 or BF16), or ask its "
    "operator for a lower --least-rate."
)
LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})


@final
@dataclass(frozen=True)
class Retry:
    """Exponential backoff with full jitter.

    Before attempt n + 1 a worker waits a time uniform on 0 .. ``first_s * factor ** n``, at most
    ``most_s``, after whatever the server asks for with Retry-After, of which ``longest_s`` is
    believed. ``tries`` is None for a worker that never gives up.
    """

    tries: int | None = 8
    first_s: float = 0.5
    factor: float = 2.0
    most_s: float = 60.0
    longest_s: float = 3600.0

    def __post_init__(self) -> None:
        if self.tries is not None and self.tries < 1:
            raise ConfigError(f"Retry needs tries >= 1, or None for ever, got {self.tries}.")
        if not (0 <= self.first_s <= self.most_s and self.factor >= 1 and self.longest_s >= 0):
            raise ConfigError(
                f"Retry needs 0 <= first_s <= most_s, factor >= 1 and longest_s >= 0, got {self}."
            )

    def wait_s(self, failures: int, asked_s: float, rng: Random) -> float:
        """How long to wait after so many failures in a row, the first being 0."""
        # Beyond 2^64 times the first wait nothing but the bound matters, and floats would overflow.
        widest = min(self.most_s, self.first_s * min(self.factor ** min(failures, 64), 2.0**64))
        return min(max(asked_s, 0.0), self.longest_s) + rng.uniform(0.0, widest)


@dataclass(frozen=True)
class Secure:
    """How a worker knows its server, and the server it: files in PEM form."""

    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None

    def context(self) -> ssl.SSLContext:
        if self.client_key is not None and self.client_cert is None:
            raise ConfigError("A client key was given without its certificate: give client_cert.")
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.client_cert is not None:
                context.load_cert_chain(self.client_cert, self.client_key)
        except OSError as error:  # among them those of TLS itself
            named = ", ".join(
                str(f) for f in (self.ca_file, self.client_cert, self.client_key) if f
            )
            raise ConfigError(f"{named} cannot be used for TLS: {error.strerror}.") from error
        return context


class Trouble(Exception):
    """No answer, or one that asking again may change."""

    def __init__(self, code: str, message: str, asked_s: float = 0.0) -> None:
        super().__init__(message)
        self.code, self.asked_s = code, asked_s


class Token(httpx.Auth):
    """Puts the token on every request, and into no log line, repr or traceback of ours."""

    def __init__(self, token: str) -> None:
        owner = token_owner(token)
        if owner is None:
            raise ConfigError("A token has the form NAME.SECRET, on one line; this one has not.")
        self.worker = owner
        self._header = f"Bearer {token}"

    def auth_flow(self, request: httpx.Request) -> Any:  # a generator of requests
        request.headers["Authorization"] = self._header
        yield request


@final
class Channel:
    """One server: where it is, how to get there, how often to try."""

    def __init__(
        self,
        url: str,
        *,
        token: Token | None,
        secure: Secure,
        proxy: str | None,
        timeout_s: float,
        transport: httpx.BaseTransport | None,
        clock: Clock,
        rng: Random,
    ) -> None:
        self.url = _checked(url)
        self._clock, self._rng = clock, rng
        self.stopping = False
        if token is not None and self.url.scheme == "http" and self.url.host not in LOCAL:
            say("token_in_clear", logging.WARNING, server=str(self.url), remedy="Use https.")
        try:
            through = None if proxy is None else httpx.Proxy(proxy)
        except (ValueError, httpx.InvalidURL) as error:  # not shown: it may hold a password
            raise ConfigError("The proxy's URL begins with http:// or https://.") from error
        self._http = httpx.Client(
            base_url=self.url,
            auth=token,
            verify=secure.context() if transport is None else True,
            proxy=through,
            timeout=timeout_s,
            transport=transport,
            headers={"Accept-Encoding": "identity"},
        )

    def ask(
        self,
        request: tuple[str, str],
        read: Callable[[httpx.Response], T],
        *,
        retry: Retry,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> T:
        """Send the same request until ``read`` makes sense of the answer, or patience ends."""
        method, path = request
        slow = 0  # answers in a row that the request came too slowly
        message = self._http.build_request(method, path, headers=headers, content=content)
        for failures in count():
            try:
                return self._attempt(message, read)
            except Trouble as trouble:
                slow = slow + 1 if trouble.code in TOO_SLOW else 0
                if slow == SLOW_TRIES:
                    say("too_slow", logging.WARNING, path=path, remedy=FASTER)
                given_up = retry.tries is not None and failures + 1 >= retry.tries
                if not (given_up or self.stopping):
                    wait_s = retry.wait_s(failures, trouble.asked_s, self._rng)
                    facts = {"code": trouble.code, "reason": str(trouble), "wait_s": wait_s}
                    say("retry", logging.WARNING, path=path, **facts)
                    self._clock.sleep(wait_s)
                if given_up or self.stopping:
                    raise LinkError(
                        f"{method} {message.url} failed {failures + 1} times, last with: {trouble} "
                        f"{FASTER if slow >= SLOW_TRIES else 'Try again later.'}",
                        trouble.code,
                    ) from trouble
        raise AssertionError("count() has no end")

    def _attempt(self, message: httpx.Request, read: Callable[[httpx.Response], T]) -> T:
        try:
            answer = _whole(self._http.send(message, stream=True))
        except httpx.RequestError as error:
            self._check_curable(error)
            raise Trouble("unreachable", _why(error)) from error
        if answer.status_code in AGAIN:
            raise Trouble(*refusal(answer), self._asked_s(answer.headers.get("Retry-After", "")))
        return read(answer)

    def close(self) -> None:
        self._http.close()

    def _asked_s(self, text: str) -> float:
        """Retry-After: seconds, or a date."""
        try:
            return float(text) if re.fullmatch(r"[\d.]+", text) else self._until_s(text)
        except (ValueError, TypeError):
            return 0.0

    def _until_s(self, text: str) -> float:
        when: datetime = parsedate_to_datetime(text)
        return when.timestamp() - self._clock.now_s()

    def _check_curable(self, error: httpx.RequestError) -> None:
        """A server that proves to be another stays so, however often it is asked."""
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise LinkError(
                    f"{self.url} does not prove who it is ({cause.verify_message}): give the "
                    "certificate of its authority as ca_file.",
                    "certificate",
                ) from error
            cause = cause.__cause__ or cause.__context__


def _why(error: httpx.RequestError) -> str:
    reason = f"{type(error).__name__}: {str(error).rstrip('.')}."
    if isinstance(error, httpx.RemoteProtocolError) and error.request.url.scheme == "http":
        reason += " If the server has TLS, its URL begins with https://."
    return reason


def _whole(coming: httpx.Response) -> httpx.Response:
    """An answer, read to its end; not one without an end, nor one that unpacks to anything."""
    with contextlib.closing(coming):
        packed = coming.headers.get("Content-Encoding", "identity")
        if packed.lower() != "identity":
            raise Trouble(
                "garbled", f"The answer is packed ({packed[:40]}), which nobody asked for."
            )
        pieces, size = [], 0
        for piece in coming.iter_bytes():
            size += len(piece)
            if size > LARGEST:
                raise Trouble("garbled", f"The answer has more than {LARGEST} bytes.")
            pieces.append(piece)
    return httpx.Response(
        coming.status_code,
        headers=coming.headers,
        content=b"".join(pieces),
        request=coming.request,
        extensions=coming.extensions,
    )


def refusal(answer: httpx.Response) -> tuple[str, str]:
    """The code of a refusal, and its message with the remedy."""
    try:
        told = json.loads(answer.content)
        return str(told["error"]), f"{told['message']} {told.get('remedy', '')}".strip()
    except (ValueError, KeyError, TypeError):  # a proxy's words, not our server's
        return f"http_{answer.status_code}", f"HTTP {answer.status_code} {answer.reason_phrase}."


def _checked(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url!r} is not a URL: {error}.") from error
    if parsed.userinfo:
        raise ConfigError("The server's URL holds a password: give a token instead.")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"The server's URL begins with http:// or https://, got {url!r}.")
    return parsed
