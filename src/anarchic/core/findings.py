"""What a check before the start finds: one sentence for each thing that was looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from anarchic.core.reading import printable, reason
from anarchic.errors import AnarchicError

Status = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, and what to do unless it is ok."""

    check: str
    status: Status
    message: str


class Doubt(AnarchicError):
    """Raised by a check: it would work, but somebody should look at it."""


def look(check: str, at: Callable[[], str]) -> Finding:
    """What ``at`` says of itself, or why it cannot."""
    try:
        return Finding(check, "ok", _line(at()))
    except Doubt as doubt:
        return Finding(check, "warning", _line(str(doubt)))
    except AnarchicError as error:
        return Finding(check, "failed", _line(str(error)))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return Finding(check, "failed", _line(f"{where}{reason(error)}."))
    except Exception as error:  # whatever code of somebody else does
        return Finding(check, "failed", _line(f"{type(error).__name__}: {reason(error)}."))


def _line(text: str) -> str:
    return printable(" ".join(text.split()), most=1_000)
