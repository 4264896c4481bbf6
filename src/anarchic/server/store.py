"""What the server needs of its database: what is durable, and when.

The promise rests on three rules. An update counts as accepted once ``append`` has returned, and
then it is on disk. The aggregator, not the insert, decides in which order updates are folded, and
``publish`` stores that order together with the version that it made, all or nothing, before
anybody sees the version. Whoever publishes names the version that it builds on and the epoch in
which it leads; if either is no longer true, nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

HISTORY = 16  # versions that can be pulled, by default

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class NewUpdate:
    """An update that was checked and waits to become durable."""

    worker: str
    id: str
    digest: bytes  # SHA-256 of the body: the same id with another body is a conflict
    base_version: int
    local_steps: int
    local_lr: float
    samples: int
    norm: float  # of local_lr * direction
    received_s: float  # wall clock
    body: Buffer  # as it was received


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a new update. ``seq`` is that of the update which counts."""

    outcome: Literal["accepted", "duplicate", "conflict"]
    seq: int


@dataclass(frozen=True, slots=True)
class Folded:
    """A row of the trace: one accepted update, and what became of it.

    ``order`` is its place in the order of folding, counted from 0 over the whole run; ``version``
    is the version that it helped to make. Both are None until a version holds the update.
    """

    seq: int
    worker: str
    id: str
    base_version: int
    local_steps: int
    local_lr: float
    samples: int
    norm: float
    received_s: float
    order: int | None
    version: int | None


@dataclass(frozen=True, slots=True)
class Publication:
    """A new version, and everything that must become true with it."""

    epoch: int
    previous: int  # the version that it builds on
    version: int
    folded: Sequence[tuple[int, int]]  # (seq, version that it helped to make), in order of folding
    model: bytes  # the snapshot as workers pull it
    state: bytes  # the rule's state without parameters and rows
    rows: Mapping[str, bytes] = field(default_factory=dict)  # changed rows of AFA-CS, by worker
    forgotten: Sequence[str] = ()  # workers whose rows are gone
    # (version, worker): the row was dropped before any update after that version was folded, since
    # the worker was revoked. The rule knows nothing of it, so a replay must be told.
    revoked: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What a store knows of its run: its settings, where it stands, and what it keeps."""

    id: str
    settings: Mapping[str, Any]  # the rule and its settings, JSON-able, fixed at creation
    version: int
    epoch: int  # of the last leader
    folded: int  # updates folded so far, that is the next order
    keep_payloads: bool  # bodies of updates and the first model are kept, for a replay


@dataclass(frozen=True, slots=True)
class Account:
    """A worker that may push. Only the hash of its token is stored."""

    worker: str
    token_hash: bytes
    revoked: bool


class Store(Protocol):
    """Keeps one run durably. Methods may be called from any thread.

    They raise ``StoreFull`` when the disk is full, ``StoreUnavailable`` when the database cannot be
    read or written now, and ``StoreCorrupt`` when what it holds cannot be right.
    """

    @property
    def shared(self) -> bool:
        """Whether other processes may append to the same run."""

    def create(self, settings: Mapping[str, Any], model: bytes, state: bytes) -> StoredRun:
        """Start a run at version 0; refused where one exists."""

    def run(self) -> StoredRun | None:
        """Where the run stands, or None where there is none."""

    def append(self, updates: Sequence[NewUpdate]) -> list[Receipt]:
        """Make updates durable, all in one transaction, and say of each what became of it."""

    def seen(self, worker: str, id: str, digest: bytes) -> int | None:
        """The seq of an update that was accepted with these bytes."""

    def waiting(self, first: int = 0, limit: int | None = None) -> list[tuple[int, str]]:
        """(seq, worker) of every update that no version holds, the oldest first.

        With ``first`` only from that seq on, with ``limit`` at most this many. Do not use ``first``
        on a shared store: a slow replica may commit an update below it later.
        """

    def publish(self, publication: Publication) -> None:
        """Make a version durable; ``Deposed`` if another leads or the version has moved on.

        Bodies of folded updates are dropped unless the run keeps payloads; models older than the
        history are dropped.
        """

    def model(self, version: int) -> bytes | None:
        """A version that is still kept."""

    def state(self) -> tuple[bytes, dict[str, bytes]]:
        """The rule's state at the newest version, and its rows by worker."""

    def revoked(self) -> dict[int, list[str]]:
        """Whose rows were dropped after which version, as publications said; sorted by name."""

    def trace(self) -> Iterator[Folded]:
        """Every accepted update: the folded ones in their order, then the others by ``seq``."""

    def body(self, seq: int) -> Buffer | None:
        """The body of an update, if it is still kept."""

    def accounts(self) -> dict[str, Account]:
        """All workers with tokens."""

    def accounts_mark(self) -> bytes:
        """A value that changes whenever any process puts an account: cheaper than ``accounts``.

        Read before ``accounts``, it is never newer than they are.
        """

    def put_account(self, account: Account) -> None:
        """Add a worker, or change its token or standing."""

    def add_evaluation(self, version: int, metrics: Mapping[str, float]) -> None: ...

    def evaluations(self, limit: int) -> list[tuple[int, dict[str, float]]]:
        """Of the newest ``limit`` versions that were evaluated, the oldest first."""

    def lead(self) -> int | None:
        """Try to become the one that aggregates: a new epoch, or None while another leads.

        Leadership lasts until ``resign``, ``close``, or the death of the process or connection.
        """

    def still_leads(self) -> bool: ...

    def resign(self) -> None: ...

    def wait(self, timeout_s: float) -> None:
        """Return when another process may have appended or published, or after the timeout."""

    def close(self) -> None: ...
