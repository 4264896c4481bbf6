"""The server's answers to an update."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from anarchic.errors import WorkerError

if TYPE_CHECKING:
    import httpx

# Refusals of the update itself, by an anarchic server: sending it again is no use. The same status
# with another body comes from a proxy, and says nothing about the update.
FINAL_REFUSALS = frozenset(
    {
        (409, "stale"),
        (409, "unknown_version"),
        (409, "conflict"),
        (413, "too_large"),
        (422, "malformed"),
        (422, "not_finite"),
    }
)


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
