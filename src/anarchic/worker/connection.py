"""Settings of a worker's connection to its server, and the server's answers to an update."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass, field
from os import PathLike
from random import Random
from typing import TYPE_CHECKING, Literal, final

from anarchic.errors import ConfigError, WorkerError
from anarchic.worker.tls import make_context

if TYPE_CHECKING:
    import httpx

Path = str | PathLike[str]
DTYPES = ("F32", "F16", "BF16")
# Refusals of the update itself, by an anarchic server: sending it again is no use. The same status
# with another body comes from a proxy, and says nothing about the update.
FINAL_REFUSALS = frozenset(
    {
        *((409, code) for code in ("stale", "unknown_version", "conflict")),
        (413, "too_large"),
        *((422, code) for code in ("malformed", "not_finite")),
    }
)


@final
@dataclass(frozen=True)
class Retry:
    """Exponential backoff with full jitter.

    Before attempt n + 1 a worker waits a time uniform on 0 .. ``first_s * factor ** n``, at most
    ``max_s``. If the server asks for a wait with Retry-After, that comes first, up to
    ``max_retry_after_s``. ``tries`` is None for a worker that never gives up.
    """

    tries: int | None = 8
    first_s: float = 0.5
    factor: float = 2.0
    max_s: float = 60.0
    max_retry_after_s: float = 3600.0

    def __post_init__(self) -> None:
        if self.tries is not None and self.tries < 1:
            raise ConfigError(f"Retry needs tries >= 1, or None for no limit, got {self.tries}.")
        ordered = 0 <= self.first_s <= self.max_s
        if not (ordered and self.factor >= 1 and self.max_retry_after_s >= 0):
            raise ConfigError(
                "Retry needs 0 <= first_s <= max_s, factor >= 1 and max_retry_after_s >= 0, got "
                f"{self}."
            )

    def wait_s(self, failures: int, retry_after_s: float, rng: Random) -> float:
        """How long to wait after a failure, ``failures`` others having come before it in a row."""
        # Beyond 2^64 times the first wait only max_s matters, and floats would overflow.
        widest = min(self.max_s, self.first_s * min(self.factor ** min(failures, 64), 2.0**64))
        return min(max(retry_after_s, 0.0), self.max_retry_after_s) + rng.uniform(0.0, widest)


@final
@dataclass(frozen=True)
class Connection:
    """How a worker reaches its server: timeout, retries, number format, proxy and TLS files.

    ``timeout_s`` is the longest silence of the network before a request counts as failed.
    Directions travel as ``dtype``. ``ca_file`` is the authority that signed the server's
    certificate, ``client_cert`` and ``client_key`` are the worker's own, all in PEM form.
    ``transport`` replaces the network in tests.
    """

    timeout_s: float = 30.0
    retry: Retry = Retry()
    dtype: Literal["F32", "F16", "BF16"] = "F32"
    proxy: str | None = field(default=None, repr=False)  # may hold a password
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    transport: httpx.BaseTransport | None = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ConfigError(f"There is no dtype {self.dtype!r}; there are {', '.join(DTYPES)}.")
        if self.client_key is not None and self.client_cert is None:
            raise ConfigError(
                "client_key (--client-key) was given without its certificate: give client_cert "
                "(--client-cert) too."
            )

    def tls(self) -> ssl.SSLContext:
        return make_context(self.ca_file, self.client_cert, self.client_key)


class RetryableError(Exception):
    """No answer, or one that may be different next time."""

    def __init__(self, code: str, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.code, self.retry_after_s = code, retry_after_s


@dataclass(frozen=True, slots=True)
class Answer:
    """The server has stored the update for good; its newest version is ``version``."""

    status: Literal["accepted", "duplicate"]
    version: int
    buffered: int  # updates that wait for the next step


@dataclass(frozen=True, slots=True)
class Refused:
    """The server will never take this update."""

    code: str
    message: str

    @property
    def out_of_date(self) -> bool:
        """The next update will be taken if it starts from a newer model."""
        return self.code in ("stale", "unknown_version")


def read_answer(answer: httpx.Response) -> Answer | Refused:
    """Accepted or refused; raises what is neither."""
    if answer.status_code >= 400:
        code, message = refusal(answer)
        if (answer.status_code, code) in FINAL_REFUSALS:
            return Refused(code, message)
    if answer.status_code not in (200, 202):
        raise unexpected(answer)
    try:
        told = json.loads(answer.content)
        if told["status"] not in ("accepted", "duplicate"):
            raise ValueError(told["status"])
        return Answer(told["status"], int(told["version"]), int(told["buffered"]))
    except (ValueError, KeyError, TypeError) as error:
        raise RetryableError("garbled", "The answer is not that of an anarchic server.") from error


def refusal(answer: httpx.Response) -> tuple[str, str]:
    """The code of a refusal, and its message with the remedy."""
    try:
        told = json.loads(answer.content)
        return str(told["error"]), f"{told['message']} {told.get('remedy', '')}".strip()
    except (ValueError, KeyError, TypeError):  # from a proxy, not from our server
        return f"http_{answer.status_code}", f"HTTP {answer.status_code} {answer.reason_phrase}."


def unexpected(answer: httpx.Response) -> WorkerError:
    """An answer that does not concern the update: a wrong token, a wrong address."""
    code, message = refusal(answer)
    return WorkerError(f"{answer.request.method} {answer.request.url}: {message}", code)
