"""Names of workers, and of the tokens that prove them."""

from __future__ import annotations

import re

WORKER_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_SECRET = re.compile(r"[!-~]{1,512}")


def token_owner(token: str) -> str | None:
    """The worker that a token NAME.SECRET belongs to; None if it does not have that form.

    The last dot ends the name, which may have dots of its own.
    """
    worker, _, secret = token.rpartition(".")
    return worker if WORKER_NAME.fullmatch(worker) and _SECRET.fullmatch(secret) else None
