"""What operators do with tokens, in a store that may be served meanwhile."""

from __future__ import annotations

import hashlib
import json
import math
import re
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import select

from anarchic.core.reading import parse_json, shown
from anarchic.errors import ConfigError
from anarchic.server import tables as t
from anarchic.server.accounts import (
    accounts,
    change_account,
    check_name,
    check_rights,
    new_token,
    put_account,
    put_accounts,
)
from anarchic.server.clock import SYSTEM, Clock
from anarchic.server.records import Account
from anarchic.server.store import Store, open_store

_UNITS = {"m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 7 * 86_400.0}
LONGEST_S = 100 * 366 * 86_400.0  # a longer time is a mistake
FORMAT = 1  # of exported tokens
MOST_BYTES = 64 << 20  # of such a file
_FACTS = ("worker", "token_hash", "revoked", "rights", "expires_s", "old_hash", "old_until_s")


def add_token(
    where: str | Path, worker: str, *, rights: str = "pull,push", expires_s: float | None = None
) -> str:
    """A new token, of which the store keeps the hash. It replaces a former one of the worker."""
    token, account = new_token(worker, rights=rights, expires_s=expires_s)
    with closing(open_store(where)) as store:
        put_account(store, account)
    return token


def rotate_token(
    where: str | Path, worker: str, *, overlap_s: float, expires_s: float | None = None,
    clock: Clock = SYSTEM,
) -> str:  # fmt: skip
    """A new token with the same rights; the one before it is taken for ``overlap_s`` more.

    The new one ends as the one before did, unless ``expires_s`` is given. An old token never
    outlives its own end, and an earlier one that was still taken no longer is.
    """
    token, new = new_token(worker)
    now_s = clock.time()

    def rotated(account: Account | None) -> Account:
        account = _known(account, worker)
        if account.revoked:
            raise ConfigError(
                f"The token of {worker!r} is revoked, so there is none to rotate: use 'anarchic "
                "token add' to let it take part again."
            )
        ends_s = account.expires_s if expires_s is None else expires_s
        if ends_s is not None and ends_s <= now_s:
            raise ConfigError(
                f"The token of {worker!r} has expired, and a new one would have too: give "
                "--expires, such as --expires 90d."
            )
        until_s = min(now_s + overlap_s, account.expires_s or math.inf)
        old = account.token_hash if until_s > now_s else None
        return replace(
            account, token_hash=new.token_hash, expires_s=ends_s,
            old_hash=old, old_until_s=None if old is None else until_s,
        )  # fmt: skip

    with closing(open_store(where, create=False)) as store:
        change_account(store, worker, rotated)
    return token


def list_tokens(where: str | Path) -> list[Account]:
    """All accounts, by name."""
    with closing(open_store(where, create=False)) as store:
        return [account for _, account in sorted(accounts(store).items())]


def revoke_token(where: str | Path, worker: str) -> None:
    """Let a worker push no more; running servers notice within a second."""
    with closing(open_store(where, create=False)) as store:
        revoke(store, worker)


def revoke(store: Store, worker: str) -> None:
    """As ``revoke_token``, in a store that is open."""
    change_account(store, worker, lambda former: replace(_known(former, worker), revoked=True))


def export_tokens(where: str | Path) -> str:
    """All accounts as JSON, with the hashes of their tokens: no secret is in it."""
    tokens = [_fields(account) for account in list_tokens(where)]
    return json.dumps(
        {"anarchic_tokens": FORMAT, "sha256": _checksum(tokens), "tokens": tokens}, indent=1
    )


def import_tokens(text: bytes, where: str | Path, *, replace: bool = False) -> list[str]:
    """Put exported accounts into a store, all or none; returns the names."""
    new = _read_export(text)
    names = [account.worker for account in new]
    with closing(open_store(where)) as store, store.writing() as connection:
        known = set(connection.execute(select(t.workers.c.worker)).scalars())
        if not replace and (taken := sorted(known.intersection(names))):
            few = ", ".join(taken[:5]) + (f" and {len(taken) - 5} more" if taken[5:] else "")
            raise ConfigError(
                f"The store has tokens of {few} already. Nothing was imported: give --replace to "
                "replace them with those of the file."
            )
        put_accounts(store, connection, new)
    return names


def _fields(account: Account) -> dict[str, Any]:
    found = {name: getattr(account, name) for name in _FACTS}
    return {n: value.hex() if isinstance(value, bytes) else value for n, value in found.items()}


def _checksum(tokens: list[Any]) -> str:
    return hashlib.sha256(json.dumps(tokens, sort_keys=True).encode()).hexdigest()


def _read_export(text: bytes) -> list[Account]:
    try:
        found = parse_json(text)
        if found["anarchic_tokens"] != FORMAT:
            raise ValueError(f"its format is {shown(found['anarchic_tokens'])}, not {FORMAT}")
        if found["sha256"] != _checksum(found["tokens"]):
            raise ValueError("its checksum does not match: it was damaged or edited")
        new = [_account(fields) for fields in found["tokens"]]
        if len({account.worker for account in new}) < len(new):
            raise ValueError("a name is in it twice")
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        told = f"it lacks {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise ConfigError(
            f"The file holds no exported tokens: {told}. Nothing was imported: write it "
            "again with 'anarchic token export'."
        ) from error
    return new


def _account(fields: dict[str, Any]) -> Account:
    """An account of a file that anybody may have written."""
    if set(fields) != set(_FACTS):
        raise ValueError(f"a token has the fields {shown(sorted(fields))}")
    check_name(fields["worker"])
    check_rights(fields["rights"])
    for name in ("expires_s", "old_until_s"):
        value = fields[name]
        if not (value is None or (type(value) is float and 0 <= value < math.inf)):
            raise ValueError(f"{name} is {shown(value)}")
    if type(fields["revoked"]) is not bool:
        raise ValueError(f"revoked is {shown(fields['revoked'])}")
    hashes = {name: fields[name] and bytes.fromhex(fields[name]) for name in _HASHES}
    if len(hashes["token_hash"]) != 32 or len(hashes["old_hash"] or bytes(32)) != 32:
        raise ValueError("a hash does not have 32 bytes")
    return Account(**{**fields, **hashes})


_HASHES = ("token_hash", "old_hash")


def _known(account: Account | None, worker: str) -> Account:
    if account is None:
        raise ConfigError(f"Worker {worker!r} has no token: see 'anarchic token list'.")
    return account


def parse_span(text: str) -> float:
    """Seconds of a time such as 90d, 24h, 30m or 2w."""
    found = re.fullmatch(r"([0-9]{1,9})([mhdw])", text.strip())
    seconds = int(found[1]) * _UNITS[found[2]] if found else math.nan
    if not 0 <= seconds <= LONGEST_S:
        raise ConfigError(
            f"A time is a number with m, h, d or w, such as 90d or 24h; got {text!r}."
        )
    return seconds


def parse_end(text: str, clock: Clock = SYSTEM) -> float:
    """When a token ends: after a time such as 90d, or with a day such as 2027-01-31 (UTC)."""
    now_s = clock.time()
    try:
        day = datetime.strptime(text.strip(), "%Y-%m-%d").replace(tzinfo=UTC)
        end_s = (day + timedelta(days=1)).timestamp()
    except ValueError:
        end_s = now_s + parse_span(text)
    except OverflowError:
        end_s = math.inf
    if not now_s < end_s <= now_s + LONGEST_S:
        raise ConfigError(
            f"A token ends after a time such as 90d, or with a day to come such as 2027-01-31; got "
            f"{text!r}."
        )
    return end_s
