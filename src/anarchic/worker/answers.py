"""What a server says to an update."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

import httpx

from anarchic.errors import LinkError
from anarchic.worker.channel import Trouble, refusal

# An anarchic server's words on the update itself: sending it again is no use. The same status with
# other words is a proxy's, and the update may be as good as ever.
VERDICTS = frozenset(
    {
        (409, "stale"),
        (409, "unknown_version"),
        (409, "conflict"),
        (413, "too_large"),
        (422, "malformed"),
        (422, "not_finite"),
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The server has the update, durably, and stands at ``version``."""

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
        """Cured by a pull, for the next update."""
        return self.code in ("stale", "unknown_version")


def read_answer(answer: httpx.Response) -> Answer | Refused:
    """What became of an update that was sent."""
    if answer.status_code >= 400:
        code, message = refusal(answer)
        if (answer.status_code, code) in VERDICTS:
            return Refused(code, message)
    if answer.status_code not in (200, 202):
        raise unexpected(answer)
    try:
        told = json.loads(answer.content)
        if told["status"] not in ("accepted", "duplicate"):
            raise ValueError(told["status"])
        return Answer(told["status"], int(told["version"]), int(told["buffered"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Trouble("garbled", "The answer is not that of an anarchic server.") from error


def unexpected(answer: httpx.Response) -> LinkError:
    """Not the update's fault: a wrong token, a wrong address."""
    code, message = refusal(answer)
    return LinkError(f"{answer.request.method} {answer.request.url}: {message}", code)
