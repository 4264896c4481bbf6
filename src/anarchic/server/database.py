"""What SQLite and PostgreSQL do differently: locks, leadership, waiting, meanings of errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sqlalchemy import Connection


class Database(Protocol):
    """What differs between databases. Everything raises ``StoreError``, never SQLAlchemy's own."""

    shared: bool  # by several servers
    largest: int  # bytes that one value can hold
    insert: Callable[..., Any]  # SQLAlchemy has one per dialect, for ON CONFLICT

    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction that sees one moment of the database."""

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that is durable once left, or has not happened."""

    def next_seqs(self, connection: Connection, count: int) -> Sequence[int]: ...

    def announce(self, connection: Connection) -> None:
        """Wake all who wait, once this transaction is committed."""

    def wait(self, timeout_s: float) -> None: ...

    def take_lead(self) -> bool: ...

    def holds_lead(self) -> bool: ...

    def drop_lead(self) -> None: ...

    def close(self) -> None: ...
