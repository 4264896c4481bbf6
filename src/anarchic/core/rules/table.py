"""What AFA-CS, MIFA, ACE, CA2FL, FedVARP and FedStale share: a table of each worker's last row.

They differ in what a row holds and in how a step is read out of the table: AFA-CS, MIFA and ACE
step along its mean, the others along the mean before the step plus a correction by the updates of
the step. An update costs O(d), however many workers there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anarchic.core.arrays import times, zeros
from anarchic.core.checking import check
from anarchic.core.rows import WorkerRows
from anarchic.core.rule import SteppingRule, versions_met
from anarchic.core.rules.buffer import check_settings
from anarchic.core.steps import SgdStep, Step, stepped
from anarchic.core.types import EMPTY, Update, Updates, Vector
from anarchic.errors import ConfigError, UpdateRefused
from anarchic.kernels import faster


class RowExchange(NamedTuple):
    """A row that becomes ``local_lr * direction``."""

    row: Vector
    known: bool  # whether what is in the row counts already
    direction: Vector
    local_lr: float


@faster
def exchange(total: Vector, exchanges: Sequence[RowExchange]) -> None:
    """Write rows, one after another, and bring ``total``, the sum of all rows, up to date.

    What is added is what a row has become, rounded as it is kept, so that exactly the same is
    subtracted when it is replaced.
    """
    for row, known, direction, local_lr in exchanges:
        if known:
            total -= row
        row[:] = times(direction, local_lr, row)
        total += row


@faster
def take_away(total: Vector, row: Vector) -> None:
    total -= row


@dataclass(slots=True)
class TableState:
    """Parameters, version, each worker's last row, and the sum of the rows."""

    params: Vector
    version: int
    rows: WorkerRows  # worker -> scale * direction
    total: Vector  # sum of the rows; float64, so that a million replacements do not drift
    count: int  # updates since the last step
    moments: dict[str, Vector]  # of the server step
    extras: Mapping[str, Vector] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True)
class TableRule(SteppingRule[TableState]):
    """Every ``m`` updates, step along what a rule reads out of the table.

    ``population`` is M (None: the workers heard so far). ``expire_after`` forgets a worker that was
    silent for more than this many versions, ``cap`` the one that was silent for the longest, where
    a newcomer would be one too many: nobody weighs for ever after leaving, and the memory is
    bounded. The sum of the rows is kept in float64.
    """

    m: int
    server_lr: float = 1.0
    population: int | None = None
    step: Step = field(default_factory=SgdStep)
    expire_after: int | None = None
    cap: int | None = None

    def __post_init__(self) -> None:
        rule = type(self).__name__
        check_settings(rule, self.m, self.server_lr)
        for name in ("population", "expire_after", "cap"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{rule} needs {name} >= 1, got {name}={value}.")

    @property
    def remembers(self) -> int | None:
        return self.cap

    def begin(self, params: Vector) -> Any:
        return TableState(**self._first(params))

    def _first(self, params: Vector) -> dict[str, Any]:
        """The fields of a ``TableState`` at version 0."""
        empty = {"rows": WorkerRows(params), "total": zeros(params, double=True)}
        return {
            "params": params,
            "version": 0,
            "count": 0,
            "moments": self.step.init(params),
        } | empty

    def fold(self, state: TableState, update: Update) -> None:
        self._check_room(state, [update.worker])
        self._make_room(state, update.worker)
        scale = self.scale(float(update.local_lr), int(update.local_steps))
        self._replace(state, [(update.worker, scale, update.direction)])

    def receive_many(self, state: TableState, block: Updates) -> TableState:
        """As in ``Rule``; room that expiry would make for M is not counted on."""
        versions = versions_met(self, state, block)
        check(block, params=state.params, version=versions, oldest=self.oldest(versions))
        self._check_room(state, block.workers)
        scales = map(self.scale, block.local_lrs.tolist(), block.local_steps.tolist())
        updates = list(zip(block.workers, scales, block.directions, strict=True))
        done = 0
        while done < len(updates):
            remaining = self.remaining(state)
            if self.cap is not None and len(state.rows) + remaining > self.cap:
                remaining = 1  # each may take the place of another
                self._make_room(state, updates[done][0])
            some = updates[done : done + remaining]
            self._replace(state, some)
            state.count += len(some)
            done += len(some)
            if state.count == self.m:
                state = self.flush(state)
        return state

    def forget(self, state: TableState, worker: str) -> bool:
        """Drop a worker's row, as on revocation; the next step is without it."""
        known = worker in state.rows
        if known:
            take_away(state.total, state.rows[worker])
            state.rows.remove(worker)
        if not len(state.rows):
            state.total[:] = 0  # not the rounding that the last row leaves behind
        return known

    def next_params(self, state: TableState) -> Vector:
        """A step along the mean of the table."""
        self._expire(state)
        vectors, by = (state.params, state.total, state.moments), self._workers(state)
        return stepped(*vectors, by, self.step, self.server_lr, clear=False)

    def _workers(self, state: TableState) -> int:
        """M."""
        return self.population or max(1, len(state.rows))

    def _replace(self, state: TableState, updates: Sequence[tuple[str, float, Vector]]) -> None:
        """Fold (worker, scale, direction), no more of them than the next step waits for."""
        rows, version = state.rows, state.version
        exchanges = []
        for worker, scale, direction in updates:
            known = worker in rows
            if not known:
                rows.put(worker, direction, version)  # to have a row that can be written to
            exchanges.append(RowExchange(rows[worker], known, direction, scale))
        exchange(state.total, exchanges)
        for (worker, _, _), each in zip(updates, exchanges, strict=True):
            rows.put(worker, each.row, version)

    def _expire(self, state: TableState) -> None:
        if self.expire_after is None:
            return
        while len(state.rows):
            worker, heard = state.rows.longest_silent()
            if state.version - heard <= self.expire_after:
                return
            self.forget(state, worker)

    def _make_room(self, state: TableState, worker: str) -> None:
        """Let workers that were silent for the longest go where a newcomer has no place."""
        if self.cap is None or worker in state.rows:
            return
        while len(state.rows) >= self.cap:  # several where the cap was lowered
            self.forget(state, state.rows.longest_silent()[0])

    def _check_room(self, state: TableState, workers: Sequence[str]) -> None:
        """Refuse a worker beyond the M that the mean is over, unless ``cap`` keeps them to M."""
        if self.population is None or len(state.rows) + len(workers) <= self.population:
            return
        if self.cap is not None and self.cap <= self.population:
            return
        newcomers = {worker for worker in workers if worker not in state.rows}
        if len(state.rows) + len(newcomers) > self.population:
            raise UpdateRefused(
                f"{type(self).__name__} is for a population of {self.population} workers and "
                f"remembers {len(state.rows)}; {sorted(newcomers)[0]!r} would be one too many: "
                "raise population."
            )
