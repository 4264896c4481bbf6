"""Giving workers tokens in a store, and revoking them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from anarchic.errors import ConfigError
from anarchic.server.auth import new_token
from anarchic.server.store import open_store


def add_token(where: str | Path, worker: str) -> str:
    """A new token of a worker, of which the store keeps the hash. It replaces a former one."""
    token, account = new_token(worker)
    with closing(open_store(where)) as store:
        store.put_account(account)
    return token


def list_tokens(where: str | Path) -> dict[str, bool]:
    """Whether the token of each worker is valid, by name."""
    with closing(open_store(where, create=False)) as store:
        return {name: not account.revoked for name, account in sorted(store.accounts().items())}


def revoke_token(where: str | Path, worker: str) -> None:
    """Let a worker push no more; running servers notice within a second."""
    with closing(open_store(where, create=False)) as store:
        account = store.accounts().get(worker)
        if account is None:
            raise ConfigError(f"Worker {worker!r} has no token: see 'anarchic token list'.")
        store.put_account(replace(account, revoked=True))
