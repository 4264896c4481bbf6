"""Who may pull and push: tokens of the store, open enrolment, and the pace of each worker."""

from __future__ import annotations

import asyncio

from anarchic.server.auth import bearer
from anarchic.server.limits import Pace
from anarchic.server.log import Log
from anarchic.server.records import Account
from anarchic.server.refusals import name_taken
from anarchic.server.settings import ServerSettings
from anarchic.server.store import Store

ACCOUNTS_S = 1.0  # how soon a new or revoked token is noticed


class Access:
    """Decides who may pull and who may push, and how often one worker may push."""

    def __init__(self, store: Store, settings: ServerSettings, log: Log) -> None:
        self._store, self._settings, self._log = store, settings, log
        self._pace = Pace(settings.limits.updates_per_minute, settings.limits.burst)
        self._accounts: dict[str, Account] = {}
        self._mark: bytes | None = None  # of the store's accounts when they were read
        self._revoked: frozenset[str] = frozenset()

    def revoked(self) -> frozenset[str]:
        """Workers whose tokens were revoked: the same object until accounts change."""
        return self._revoked

    def may_pull(self, authorization: str | None, address: str) -> str:
        """Who pulls: a worker or, where anybody may, an address."""
        return address if self._settings.open_pull else bearer(authorization, self._accounts)

    def may_push(self, authorization: str | None) -> str | None:
        """The worker that pushes, or None where the update may name it.

        A worker's pace is checked before its update is read: refusing a flood must cost little.
        """
        if self._settings.open_enrolment and authorization is None:
            return None
        worker = bearer(authorization, self._accounts)
        self._pace.take(worker)
        return worker

    def admit(self, name: str) -> None:
        """Let a worker without a token push under this name, which must not be a token's."""
        if name in self._accounts:
            raise name_taken(name)
        self._pace.take(name)

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
            self._revoked = frozenset(a.worker for a in accounts.values() if a.revoked)
            self._accounts = accounts
            self._mark = mark
