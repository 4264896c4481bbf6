"""Answers that no anarchic server gave: error pages of proxies, log-in pages of networks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from anarchic.core.reading import printable

if TYPE_CHECKING:
    from anarchic.worker.exchange import Reply

MOST_READ, MOST_SHOWN = 4_096, 200  # bytes of a page, characters of its text
_UNSEEN = re.compile(r"<!--.*?(?:-->|$)|<(script|style)\b.*?(?:</\1\s*>|$)|<[^>]*(?:>|$)", re.S)
_HINTS = {
    407: "The proxy asks who you are: give --proxy http://NAME:PASSWORD@HOST:PORT.",
    411: "The proxy in front of the server wants the length of a body in advance.",
    413: "The proxy in front of the server takes no body of this size: ask its operator for more "
    "(nginx: client_max_body_size), or send narrower numbers (--dtype F16 or BF16).",
    414: "The proxy in front of the server takes no address of this length.",
    502: "The proxy in front of the server cannot reach it: ask its operator whether it runs.",
    503: "The proxy in front of the server has none to send this to: ask its operator whether it "
    "runs.",
    504: "The proxy in front of the server waited too long for it: ask its operator to allow more "
    "time (nginx: proxy_read_timeout).",
    511: "This network asks for a log-in first: open any web page in a browser here.",
}


def described(answer: Reply) -> str:
    """The status of an answer with the start of its text and, if something is known, a hint."""
    status = f"HTTP {answer.status_code} {printable(answer.reason_phrase, most=100)}".rstrip()
    text = start_of(answer)
    told = f'{status}: "{text}".' if text else f"{status}."
    hint = _HINTS.get(answer.status_code, "") if text else ""
    return f"{told} {hint}".rstrip()


def not_ours(answer: Reply) -> str:
    """What to say of an answer that should have been the server's and is something else."""
    text = start_of(answer)
    if not text:
        return "The answer is not that of an anarchic server."
    return (
        f"The answer is not that of an anarchic server: HTTP {answer.status_code}, it begins with "
        f'"{text}". A proxy may have sent it, or a network that wants you to log in first.'
    )


def start_of(answer: Reply) -> str:
    """The first words of an answer that is text: of HTML what a reader sees, on one line."""
    kind = str(answer.headers.get("Content-Type", "")).lower()
    text = bytes(answer.content[:MOST_READ]).decode("utf-8", "replace")
    if not (kind.startswith("text/") or text.lstrip().startswith("<")):
        return ""
    seen = _UNSEEN.sub(" ", text) if "<" in text else text
    secret = answer.request.headers.get("Authorization", "").partition(" ")[2]
    if secret:  # a page may show the request that it answers
        seen = seen.replace(secret, "***")
    words = "".join(c if c.isprintable() else " " for c in seen).split()
    return printable(" ".join(words), most=MOST_SHOWN)
