"""The accounts in a store: who has a token, what it may do, and until when."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Literal

from sqlalchemy import Connection, bindparam, or_, select, update

from anarchic.core.names import WORKER_NAME
from anarchic.errors import ConfigError
from anarchic.server import records
from anarchic.server import tables as t
from anarchic.server.records import Account, rows_of
from anarchic.server.store import Store

RIGHTS = ("pull", "push", "operate")
MARK = ""  # no worker's name: this row of workers holds another number after every change
_W = t.workers.c
_NO_HASH = hashlib.sha256(secrets.token_bytes(32)).digest()  # of a token that nobody has

Standing = Literal["valid", "unknown", "revoked", "expired"]


def accounts(store: Store) -> dict[str, Account]:
    """All workers with tokens."""
    with store.reading() as connection:
        found = rows_of(connection, select(t.workers).where(_W.worker != MARK))
    return {row.worker: Account(**row._mapping) for row in found}


def operators(connection: Connection) -> set[str]:
    """Accounts that may operate and not push."""
    may = _W.rights.like("%operate%") & _W.rights.not_like("%push%")
    return set(connection.execute(select(_W.worker).where(may)).scalars())


def accounts_mark(store: Store) -> bytes:
    """A value that changes whenever any process changes an account: cheaper than ``accounts``,
    and never newer than they are if it is read before them."""
    with store.reading() as connection:
        found = rows_of(connection, select(t.workers).where(_W.worker == MARK))
    return bytes(found[0].token_hash) if found else b""


def put_account(store: Store, account: Account) -> None:
    """Add a worker, or replace what is known of it."""
    change_account(store, account.worker, lambda former: account)


def change_account(
    store: Store, worker: str, change: Callable[[Account | None], Account]
) -> Account:
    """Put what ``change`` makes of an account, which nobody else changes meanwhile."""
    with store.writing() as connection:
        query = select(t.workers).where(_W.worker == worker).with_for_update()
        found = rows_of(connection, query)
        account = change(Account(**found[0]._mapping) if found else None)
        put_accounts(store, connection, [account])
    return account


def put_accounts(store: Store, connection: Connection, new: list[Account]) -> None:
    """Put several at once, sorted, so that transactions wait for each other in one direction."""
    mark = Account(MARK, uuid.uuid4().bytes, revoked=True)
    rows = [asdict(account) for account in (*sorted(new, key=lambda a: a.worker), mark)]
    records.upsert(connection, store.insert, t.workers, rows)


def note_used(store: Store, used: Mapping[str, float]) -> None:
    """When tokens were last used, by worker. It changes nothing that a server must read again."""
    later = or_(_W.used_s.is_(None), _W.used_s < bindparam("at"))
    query = update(t.workers).where(_W.worker == bindparam("who"), later)
    with store.writing() as connection:
        rows = [{"who": worker, "at": at} for worker, at in sorted(used.items())]
        connection.execute(query.values(used_s=bindparam("at")), rows)


def new_token(
    worker: str, *, rights: str = "pull,push", expires_s: float | None = None
) -> tuple[str, Account]:
    """A token, to be given to the worker once, and the account to be stored."""
    check_name(worker)
    check_rights(rights)
    token = f"{worker}.{secrets.token_urlsafe(32)}"
    return token, Account(worker, hash_of(token), False, rights, expires_s)


def check_name(worker: str) -> None:
    if not (WORKER_NAME.fullmatch(worker) and worker.strip(".")):  # nor "..": files bear names
        raise ConfigError(
            "A worker's name has 1 to 64 letters, digits, '_', '.', '@' or '-', and not only dots; "
            f"got {worker!r}."
        )


def check_rights(rights: str) -> None:
    given = rights.split(",")
    if not set(given) <= set(RIGHTS) or len(set(given)) < len(given):
        raise ConfigError(
            f"A token's rights are one or more of {', '.join(RIGHTS)}, separated by commas, such "
            f"as pull,push; got {rights!r}."
        )


def hash_of(token: str) -> bytes:
    """A token's secret has 256 random bits, so a plain hash cannot be searched."""
    return hashlib.sha256(token.encode()).digest()


def standing(account: Account, token_hash: bytes, now_s: float) -> Standing:
    """What a token is worth now; takes the same time whichever of its tokens it is, or none."""
    present = hmac.compare_digest(token_hash, account.token_hash)
    former = hmac.compare_digest(token_hash, account.old_hash or _NO_HASH)
    if not (present or (former and now_s < (account.old_until_s or 0.0))):
        return "unknown"
    if account.revoked:
        return "revoked"
    if present and account.expires_s is not None and now_s >= account.expires_s:
        return "expired"
    return "valid"
