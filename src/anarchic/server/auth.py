"""Who a worker is: tokens of the form NAME.SECRET, of which only a hash is stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from anarchic.core.names import may_own_token
from anarchic.errors import ConfigError
from anarchic.server.records import Account
from anarchic.server.refusals import revoked, unauthorized

_NOBODY = Account("", hashlib.sha256(secrets.token_bytes(32)).digest(), revoked=False)


def new_token(worker: str) -> tuple[str, Account]:
    """A token, to be given to the worker once, and the account to be stored."""
    if not may_own_token(worker):
        raise ConfigError(
            f"A worker's name has 1 to 64 letters, digits, '_', '@' or '-', got {worker!r}."
        )
    token = f"{worker}.{secrets.token_urlsafe(32)}"
    return token, Account(worker, hash_of(token), revoked=False)


def hash_of(token: str) -> bytes:
    """A token's secret has 256 random bits, so a plain hash cannot be searched."""
    return hashlib.sha256(token.encode()).digest()


def bearer(header: str | None, accounts: dict[str, Account]) -> str:
    """The worker that an Authorization header proves; takes the same time for every worker."""
    scheme, _, token = (header or "").partition(" ")
    account = accounts.get(token.partition(".")[0], _NOBODY)
    same = hmac.compare_digest(hash_of(token), account.token_hash)
    if scheme.lower() != "bearer" or not same or account is _NOBODY:
        raise unauthorized()
    if account.revoked:
        raise revoked(account.worker)
    return account.worker
