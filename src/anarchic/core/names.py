"""Names of workers and of the tokens that prove them, and names of runs."""

from __future__ import annotations

import re

from anarchic.errors import ConfigError

WORKER_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
RUN_NAME = re.compile(r"(?![0-9a-f]{16}$|pg_|information_schema$)[a-z0-9][a-z0-9_-]{0,47}")
_SECRET = re.compile(r"[!-~]{1,512}")


def token_owner(token: str) -> str | None:
    """The worker that a token NAME.SECRET belongs to; None if it does not have that form.

    The last dot ends the name, which may have dots of its own.
    """
    worker, _, secret = token.rpartition(".")
    return worker if WORKER_NAME.fullmatch(worker) and _SECRET.fullmatch(secret) else None


def check_run_name(name: str) -> str:
    """A run's name, which is also that of a file, or of a schema in PostgreSQL.

    The ids that runs give themselves have 16 hexadecimal digits, so no name has.
    """
    if not RUN_NAME.fullmatch(name):
        raise ConfigError(
            "A run's name has 1 to 48 small letters, digits, '_' or '-', the first a letter or "
            f"digit; it is not 16 hexadecimal digits, nor pg_...; got {name!r}."
        )
    return name
