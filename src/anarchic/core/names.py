"""Names of workers, and of the tokens that prove them."""

from __future__ import annotations

import re

WORKER_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_SECRET = re.compile(r"[!-~]{1,512}")


def may_own_token(worker: str) -> bool:
    """Whether a token NAME.SECRET can be made for this name: its first dot ends the name."""
    return WORKER_NAME.fullmatch(worker) is not None and "." not in worker


def token_owner(token: str) -> str | None:
    """The worker that a token NAME.SECRET belongs to; None if it does not have that form."""
    worker, _, secret = token.partition(".")
    return worker if may_own_token(worker) and _SECRET.fullmatch(secret) else None
