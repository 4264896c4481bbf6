"""Who may pull and push: workers' tokens (NAME.SECRET), open enrolment, and each worker's pace."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from anarchic.core.names import WORKER_NAME
from anarchic.errors import ConfigError
from anarchic.server.clock import SYSTEM, Clock
from anarchic.server.limits import Pace
from anarchic.server.log import Log
from anarchic.server.records import Account
from anarchic.server.refusals import Refusal
from anarchic.server.settings import ServerSettings
from anarchic.server.slots import network
from anarchic.server.store import Store, open_store

ACCOUNTS_S = 1.0  # how soon a new or revoked token is noticed
NEIGHBOURS = 16  # workers without tokens that may share an address, each at its full pace
_NOBODY = Account("", hashlib.sha256(secrets.token_bytes(32)).digest(), revoked=False)


@dataclass(frozen=True, slots=True)
class Pusher:
    """Who sends an update: the worker of a token, or an address whose updates name their worker."""

    worker: str | None
    address: str
    token_hash: bytes | None


class Access:
    """Decides who may pull and who may push, and how often one worker may push."""

    def __init__(
        self, store: Store, settings: ServerSettings, log: Log, clock: Clock = SYSTEM
    ) -> None:
        self._store, self._settings, self._log = store, settings, log
        rate, burst = settings.limits.updates_per_minute, settings.limits.burst
        self._pace = Pace(rate, burst, clock.monotonic)
        self._networks = Pace(NEIGHBOURS * rate, NEIGHBOURS * burst, clock.monotonic)
        self._accounts: dict[str, Account] = {}
        self._mark: bytes | None = None  # of the store's accounts when they were read
        self.revoked: frozenset[str] = frozenset()  # the same object until accounts change

    def may_pull(self, authorization: str | None, address: str) -> str:
        """Who pulls: a worker or, where anybody may, an address."""
        if self._settings.open_pull:
            return network(address)
        return bearer(authorization, self._accounts)

    def shown(self, authorization: str | None) -> str | None:
        """The worker that a token proves, where none is needed; None without a valid one."""
        try:
            return None if authorization is None else bearer(authorization, self._accounts)
        except Refusal:
            return None

    def named(self, authorization: str | None) -> dict[str, str]:
        """For the log: the worker of a token, or the known worker that an invalid one names."""
        try:
            return {"worker": bearer(authorization, self._accounts)}
        except Refusal as refusal:
            claimed = (authorization or "").partition(" ")[2].rpartition(".")[0]
            if claimed not in self._accounts:  # it may be anything, a secret too
                return {}
            return {"worker" if refusal.code == "revoked" else "claimed_worker": claimed}

    def may_push(self, authorization: str | None, address: str) -> Pusher:
        """Who pushes; asked before the update is read: refusing a flood must cost little."""
        if self._settings.open_enrolment and authorization is None:
            where = network(address)
            self._networks.take(where)
            return Pusher(None, where, None)
        accounts = self._accounts  # others may follow at any moment
        worker = bearer(authorization, accounts)
        self._pace.take(worker)
        return Pusher(worker, address, accounts[worker].token_hash)

    def admit(self, pusher: Pusher, name: str) -> None:
        """Let an update that was read be stored under this name: the last check before it is.

        A token may have been revoked or replaced while the update came. Without a token the name
        must not be that of one; its pace is that of the name at its address, so that nobody
        elsewhere can use it up.
        """
        account = self._accounts.get(name)
        if pusher.worker is None:
            if account is not None:
                told = f"Worker {name!r} has a token, and this update came without."
                raise Refusal(403, "name_taken", told, "Send the token, or choose another name.")
            self._pace.take(f"{pusher.address} {name}")  # no name of a worker has a space
        elif account is None or account.revoked or account.token_hash != pusher.token_hash:
            raise _revoked(name)

    async def watch(self) -> None:
        """Read the accounts again whenever the store's have changed."""
        while True:
            await asyncio.sleep(ACCOUNTS_S)
            try:
                await asyncio.to_thread(self.read)
            except Exception as error:  # of any kind: revoking must go on
                self._log("store_error", reason=str(error) or repr(error))

    def read(self) -> None:
        """Read the accounts if any has changed: there may be many, and this runs every second."""
        mark = self._store.accounts_mark()
        if mark != self._mark:
            accounts = self._store.accounts()
            # First: a worker that is refused has no influence on any later round.
            self.revoked = frozenset(a.worker for a in accounts.values() if a.revoked)
            self._accounts = accounts
            self._mark = mark


def new_token(worker: str) -> tuple[str, Account]:
    """A token, to be given to the worker once, and the account to be stored."""
    if not (WORKER_NAME.fullmatch(worker) and worker.strip(".")):  # nor "..": files bear names
        raise ConfigError(
            "A worker's name has 1 to 64 letters, digits, '_', '.', '@' or '-', and not only dots; "
            f"got {worker!r}."
        )
    token = f"{worker}.{secrets.token_urlsafe(32)}"
    return token, Account(worker, hash_of(token), revoked=False)


def hash_of(token: str) -> bytes:
    """A token's secret has 256 random bits, so a plain hash cannot be searched."""
    return hashlib.sha256(token.encode()).digest()


def bearer(header: str | None, accounts: dict[str, Account]) -> str:
    """The worker that an Authorization header proves; takes the same time for every worker."""
    scheme, _, token = (header or "").partition(" ")
    account = accounts.get(token.rpartition(".")[0], _NOBODY)  # a name may have dots
    same = hmac.compare_digest(hash_of(token), account.token_hash)
    if scheme.lower() != "bearer" or not same or account is _NOBODY:
        told = "The request carries no valid token."
        remedy = "Send 'Authorization: Bearer TOKEN' with the token that the operator gave you."
        raise Refusal(401, "unauthorized", told, remedy)
    if account.revoked:
        raise _revoked(account.worker)
    return account.worker


def _revoked(worker: str) -> Refusal:
    told = f"The token of worker {worker!r} was revoked."
    return Refusal(403, "revoked", told, "Ask the operator for one.")


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
