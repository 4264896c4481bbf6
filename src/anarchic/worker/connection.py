"""Settings of a worker's connection to its server, and the server's answers to an update."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field, replace
from os import PathLike
from random import Random
from typing import TYPE_CHECKING, Any, Literal, final

from anarchic.core.options import says_options
from anarchic.core.reading import parse_json, printable
from anarchic.core.validation import check_kinds, check_positive
from anarchic.errors import ConfigError, WorkerError
from anarchic.worker.foreign import described, not_ours
from anarchic.worker.tls import make_context

if TYPE_CHECKING:
    import httpx

    from anarchic.worker.exchange import Reply

    Transport = httpx.BaseTransport
else:
    Transport = Any  # httpx is heavy, and loaded when it is needed

Path = str | PathLike[str]
_CODE = re.compile(r"[a-z0-9_]{1,64}")
RUN_ENDED = "run_ended"  # the code of a run that its operator has ended
PAUSED = "paused"  # that of a run that is paused: come again, with the same update
DTYPES = ("F32", "F16", "BF16")
# Refusals of the update itself, by an anarchic server: sending it again is no use. The same status
# with another body comes from a proxy, and says nothing about the update.
FINAL_REFUSALS = frozenset(
    {
        *((409, code) for code in ("stale", "too_old", "unknown_version", "withdrawn", "conflict")),
        (410, RUN_ENDED),
        (413, "too_large"),
        *((422, code) for code in ("malformed", "not_finite")),
    }
)


@says_options
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
        check_kinds(self)
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


USUAL_RETRY = Retry()


@says_options
@final
@dataclass(frozen=True)
class Connection:
    """How a worker reaches its server: timeout, retries, number format, proxy and TLS files.

    A request fails after a silence of ``timeout_s``, and at the latest after ``timeout_s`` and the
    time that the bytes sent and received take at ``least_rate`` bytes per second. A worker that is
    told to stop waits ``stop_s`` more for a request on its way. Directions travel as ``dtype``.
    ``ca_file`` is the authority that signed the server's certificate, ``client_cert`` and
    ``client_key`` are the worker's own, all in PEM form. ``transport`` replaces the network in
    tests.
    """

    timeout_s: float = 30.0
    least_rate: float = 8_192.0
    stop_s: float = 1.0
    retry: Retry = USUAL_RETRY
    dtype: Literal["F32", "F16", "BF16"] = "F32"
    proxy: str | None = field(default=None, repr=False)  # may hold a password
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    transport: Transport | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        check_positive(self, "timeout_s", "least_rate", "stop_s")
        if self.dtype not in DTYPES:
            raise ConfigError(f"There is no dtype {self.dtype!r}; there are {', '.join(DTYPES)}.")
        if self.client_key is not None and self.client_cert is None:
            raise ConfigError(
                "client_key (--client-key) was given without its certificate: give client_cert "
                "(--client-cert) too."
            )

    @property
    def visit_retry(self) -> Retry:
        """Of a visit, which has trained what it pushes: without end, unless ``retry`` was given."""
        return replace(self.retry, tries=None) if self.retry is USUAL_RETRY else self.retry

    def tls(self) -> ssl.SSLContext:
        return make_context(self.ca_file, self.client_cert, self.client_key)


class RetryableError(Exception):
    """No answer, or one that may be different next time; ``here``: a replica would say the same."""

    def __init__(
        self, code: str, message: str, retry_after_s: float = 0.0, *, here: bool = False
    ) -> None:
        super().__init__(message)
        self.code, self.retry_after_s, self.here = code, retry_after_s, here


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
        return self.code in ("stale", "too_old", "unknown_version", "withdrawn")


def read_answer(answer: Reply) -> Answer | Refused:
    """Accepted or refused; raises what is neither."""
    if answer.status_code >= 400:
        code, message = refusal(answer)
        if (answer.status_code, code) in FINAL_REFUSALS:
            return Refused(code, message)
    if answer.status_code not in (200, 202):
        raise unexpected(answer)
    try:
        told = parse_json(answer.content)
        if told["status"] not in ("accepted", "duplicate"):
            raise ValueError("there is no such status")
        return Answer(told["status"], _count(told["version"]), _count(told["buffered"]))
    except (ValueError, KeyError, TypeError) as error:
        raise RetryableError("garbled", not_ours(answer)) from error


def _count(found: object) -> int:
    """A version, or a number of updates."""
    if type(found) is not int or not 0 <= found < 10**15:
        raise ValueError("this is no count")
    return found


def refusal(answer: Reply) -> tuple[str, str]:
    """The code of a refusal, and its message with the remedy, fit to be printed."""
    try:
        told = parse_json(answer.content)
        code, message, remedy = told["error"], told["message"], told.get("remedy", "")
        if not (_CODE.fullmatch(code) and isinstance(message, str) and isinstance(remedy, str)):
            raise ValueError("this is no refusal")
        return code, printable(f"{message} {remedy}".strip(), most=1_000)
    except (ValueError, KeyError, TypeError, AttributeError):  # from a proxy, not from our server
        return f"http_{answer.status_code}", described(answer)


def unexpected(answer: Reply) -> WorkerError:
    """An answer that does not concern the update: a wrong token, a wrong address."""
    code, message = refusal(answer)
    if answer.status_code == 304:
        message += " It says that nothing has changed, which nobody asked: look at the proxy."
    elif 300 <= answer.status_code < 400 and "Location" in answer.headers:
        target = printable(answer.headers["Location"], most=200)
        message += f" It leads to {target}: if that is right, give it as the server's address."
    return WorkerError(f"{answer.request.method} {answer.request.url}: {message}", code)
