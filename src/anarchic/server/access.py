"""Who may pull, push and operate: tokens (NAME.SECRET), open enrolment, and workers' pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from anarchic.core.reading import printable
from anarchic.server.accounts import accounts, accounts_mark, hash_of, note_used, standing
from anarchic.server.clock import SYSTEM, Clock
from anarchic.server.limits import Pace
from anarchic.server.log import Log
from anarchic.server.records import Account
from anarchic.server.refusals import Refusal
from anarchic.server.settings import ServerSettings
from anarchic.server.slots import network
from anarchic.server.store import Store

ACCOUNTS_S = 1.0  # how soon a new or revoked token is noticed
USED_S = 60.0  # how often it is stored when tokens were used
SOON_S = 7 * 86_400.0  # how long before its end the log tells of a token
EXPIRED_S = 60.0  # how soon a worker whose token has expired may ask again
NEIGHBOURS = 16  # workers without tokens that may share an address, each at its full pace
_NOBODY = Account("", hash_of("nobody's"), revoked=True)


@dataclass(frozen=True, slots=True)
class Pusher:
    """Who sends an update: the worker of a token, or an address whose updates name their worker."""

    worker: str | None
    address: str
    token_hash: bytes | None
    names: frozenset[str] | None = None  # in the certificate, where its update must bear one


class Access:
    """Decides who may pull, push and operate, and how often one worker may push."""

    def __init__(
        self, store: Store, settings: ServerSettings, log: Log, clock: Clock = SYSTEM
    ) -> None:
        self._store, self._settings, self._log, self._clock = store, settings, log, clock
        rate, burst = settings.limits.updates_per_minute, settings.limits.burst
        self._pace = Pace(rate, burst, clock.monotonic)
        self._networks = Pace(NEIGHBOURS * rate, NEIGHBOURS * burst, clock.monotonic)
        self._accounts: dict[str, Account] = {}
        self._seen: Hashable = None  # the store, when they were last looked for
        self._mark: bytes | None = None  # of the store's accounts when they were read
        self._used: dict[str, float] = {}  # worker -> when, since it was stored
        self._stored_s = clock.monotonic()  # when that was
        self._ending: list[tuple[float, str]] = []  # tokens by their end, the last one first
        self._told: set[tuple[float, str]] = set()  # those that the log has told of
        self.revoked: frozenset[str] = frozenset()  # the same object until accounts change

    def may_pull(self, authorization: str | None, address: str) -> str:
        """Who pulls: a worker or, where anybody may, an address."""
        if self._settings.open_pull:
            return network(address)
        return self._holder(authorization, "pull")[0].worker

    def about(self, authorization: str | None) -> dict[str, Any]:
        """Whose token it is, its rights, and until when it is valid (null: for ever)."""
        account = self._bearer(authorization)[0]
        rights = account.rights.split(",")
        return {"worker": account.worker, "rights": rights, "expires_s": account.expires_s}

    def may_operate(self, authorization: str | None) -> str:
        """The operator whose token lets it steer the run and see everything; others are refused."""
        return self._holder(authorization, "operate")[0].worker

    def check_names(self, authorization: str | None, names: frozenset[str] | None) -> None:
        """Refuse a token of another worker than the connection's certificate, if that has names
        that bind. An invalid token is refused elsewhere, where one is needed."""
        worker = None if names is None else self.shown(authorization)
        if names is not None and worker is not None and worker not in names:
            raise _other_name(worker, names)

    def shown(self, authorization: str | None) -> str | None:
        """The worker that a token proves, where none is needed; None without a valid one."""
        try:
            return None if authorization is None else self._bearer(authorization)[0].worker
        except Refusal:
            return None

    def named(self, authorization: str | None) -> dict[str, str]:
        """For the log: the worker of a token, or the known worker that an invalid one names."""
        try:
            return {"worker": self._bearer(authorization)[0].worker}
        except Refusal as refusal:
            claimed = (authorization or "").partition(" ")[2].rpartition(".")[0]
            if claimed not in self._accounts:  # it may be anything, a secret too
                return {}
            return {"claimed_worker" if refusal.code == "unauthorized" else "worker": claimed}

    def may_push(
        self, authorization: str | None, address: str, names: frozenset[str] | None = None
    ) -> Pusher:
        """Who pushes; asked before the update is read: refusing a flood must cost little."""
        if self._settings.open_enrolment and authorization is None:
            where = network(address)
            self._networks.take(where)
            return Pusher(None, where, None, names)
        account, token_hash = self._holder(authorization, "push")
        self._pace.take(account.worker)
        return Pusher(account.worker, address, token_hash)

    def admit(self, pusher: Pusher, name: str) -> None:
        """Let an update that was read be stored under this name: the last check before it is.

        A token may have been revoked or replaced while the update came. Without a token the name
        must not be that of one; its pace is that of the name at its address, so that nobody
        elsewhere can use it up.
        """
        if pusher.worker is not None:
            self.still_may(pusher)
            return
        if name in self._accounts:
            told = f"Worker {name!r} has a token, and this update came without."
            raise Refusal(403, "name_taken", told, "Send the token, or choose another name.")
        if pusher.names is not None and name not in pusher.names:
            raise _other_name(name, pusher.names)
        self._pace.take(f"{pusher.address} {name}")  # no name of a worker has a space

    def still_may(self, pusher: Pusher) -> None:
        """Refuse whose token was revoked or replaced, or has expired, while the update came."""
        if pusher.worker is None or pusher.token_hash is None:
            return
        account = self._accounts.get(pusher.worker, _NOBODY)
        found = standing(account, pusher.token_hash, self._clock.time())
        if found == "expired":
            raise _expired(account)
        if found != "valid":
            raise _revoked(pusher.worker)
        _check_right(account, "push")

    def _bearer(self, authorization: str | None) -> tuple[Account, bytes]:
        return bearer(authorization, self._accounts, self._clock.time())

    def _holder(self, authorization: str | None, right: str) -> tuple[Account, bytes]:
        account, token_hash = self._bearer(authorization)
        _check_right(account, right)
        self._used[account.worker] = self._clock.time()
        return account, token_hash

    async def watch(self) -> None:
        """Read the accounts again whenever the store's have changed; store when they were used."""
        while True:
            await asyncio.sleep(ACCOUNTS_S)
            await self._try(self._look)
            if self._clock.monotonic() - self._stored_s >= USED_S:
                await self.store_used()

    async def store_used(self) -> None:
        """Store when tokens were used since the last time; a failure costs no more than that."""
        self._stored_s = self._clock.monotonic()
        used, self._used = self._used, {}
        if used:
            await self._try(lambda: note_used(self._store, used))

    async def _try(self, task: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(task)
        except Exception as error:  # of any kind: revoking must go on
            self._log("store_error", reason=str(error) or repr(error))

    def _look(self) -> None:
        self.read()
        self._tell_ends()

    def read(self) -> None:
        """Read the accounts if any has changed: there may be many, and this runs every second."""
        seen = self._store.mark()
        if seen is not None and seen == self._seen:
            return
        mark = accounts_mark(self._store)
        if mark != self._mark:
            found = accounts(self._store)
            # First: a worker that is refused has no influence on any later round.
            self.revoked = frozenset(a.worker for a in found.values() if a.revoked)
            self._accounts = found
            ends = ((a.expires_s, a.worker) for a in found.values() if not a.revoked)
            self._ending = sorted(((e, w) for e, w in ends if e is not None), reverse=True)
            self._told.intersection_update(self._ending)
            self._mark = mark
        self._seen = seen

    def _tell_ends(self) -> None:
        """Log, once, which tokens expire within a week."""
        now_s = self._clock.time()
        while self._ending and self._ending[-1][0] < now_s + SOON_S:
            end = expires_s, worker = self._ending.pop()
            if end not in self._told and now_s < expires_s:
                self._told.add(end)
                facts = {"worker": worker, "valid_until": _date(expires_s)}
                days, remedy = int((expires_s - now_s) / 86_400), "Use 'anarchic token rotate'."
                self._log("token_expires_soon", **facts, days=days, remedy=remedy)


def bearer(header: str | None, known: Mapping[str, Account], now_s: float) -> tuple[Account, bytes]:
    """The account that an Authorization header proves, and the hash of its token.

    It takes the same time for every worker.
    """
    scheme, _, token = (header or "").partition(" ")
    account, token_hash = known.get(token.rpartition(".")[0], _NOBODY), hash_of(token)
    found = standing(account, token_hash, now_s)
    if scheme.lower() != "bearer" or found == "unknown" or account is _NOBODY:
        told = "The request carries no valid token."
        remedy = "Send 'Authorization: Bearer TOKEN' with the token that the operator gave you."
        raise Refusal(401, "unauthorized", told, remedy)
    if found == "revoked":
        raise _revoked(account.worker)
    if found == "expired":
        raise _expired(account)
    return account, token_hash


def _check_right(account: Account, right: str) -> None:
    if right not in account.rights.split(","):
        may = " and ".join(account.rights.split(","))
        told = f"The token of {account.worker!r} may {may}, not {right}."
        remedy = f"Ask the operator for a token with the right {right!r}."
        raise Refusal(403, "not_allowed", told, remedy)


def _revoked(worker: str) -> Refusal:
    told = f"The token of worker {worker!r} was revoked."
    return Refusal(403, "revoked", told, "Ask the operator for one.")


def _other_name(worker: str, names: frozenset[str]) -> Refusal:
    shown = printable(", ".join(sorted(names)), most=200) or "nobody"
    told = f"The certificate of this connection is for {shown}, not for worker {worker!r}."
    remedy = f"Use a certificate that was made for {worker}: --client-cert, --client-key."
    return Refusal(403, "certificate_name", told, remedy, facts={"certificate": shown})


def _expired(account: Account) -> Refusal:
    told = f"The token of worker {account.worker!r} expired on {_date(account.expires_s or 0.0)}."
    return Refusal(401, "expired", told, "Ask the operator for a new one.", EXPIRED_S)


def _date(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M} UTC"
