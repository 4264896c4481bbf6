"""AFA-CS: anarchic federated averaging for a few silos, with a memory of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

from anarchic.core.arrays import times, zeros
from anarchic.core.checking import check
from anarchic.core.rows import WorkerRows
from anarchic.core.rule import SteppingRule, versions_met
from anarchic.core.rules.buffer import check_settings
from anarchic.core.steps import SgdStep, Step, stepped
from anarchic.core.types import EMPTY, Update, Updates, Vector
from anarchic.errors import ConfigError, UpdateRefused
from anarchic.kernels import faster


class Exchange(NamedTuple):
    """A row that becomes ``local_lr * direction``."""

    row: Vector
    known: bool  # whether what is in the row counts already
    direction: Vector
    local_lr: float


@faster
def exchange(total: Vector, exchanges: Sequence[Exchange]) -> None:
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
class AfaCsState:
    """Parameters, version, each worker's last row, and the sum of the rows."""

    params: Vector
    version: int
    rows: WorkerRows  # worker -> eta_L_i * G_i
    total: Vector  # sum of the rows; float64, so that a million replacements do not drift
    count: int  # updates since the last step
    moments: dict[str, Vector]  # of the server step
    extras: Mapping[str, Vector] = field(default_factory=lambda: EMPTY)


@final
@dataclass(frozen=True, slots=True)
class AfaCs(SteppingRule[AfaCsState]):
    """Anarchic federated averaging, cross-silo form.

    The server remembers the last update of every worker. Every ``m`` new ones it steps along the
    mean of all that it remembers, so a worker that seldom reports counts as much as one that
    often does:

        x_{t+1} = x_t - eta * (1/M) * sum_{i in [M]} eta_L_i * G_i

    Symbols: ``m`` is m, ``server_lr`` is eta, ``population`` is M (None: the workers heard so
    far), the rows are eta_L_i * G_i. An update costs O(d), whatever M is.
    ``expire_after`` forgets a worker that was silent for more than this many versions, ``cap`` the
    one that was silent for the longest, where a newcomer would be one too many: nobody weighs for
    ever after leaving, and the memory is bounded. The sum of the rows is kept in float64; a row a
    trillion times larger than the rest leaves rounding behind even when it is gone, so put ``Clip``
    around the rule where workers are not trusted.
    Reference: Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022,
    arXiv:2108.09875, Algorithm 3. Departs from it in: the step carries eta_L, as in the proofs;
    the mean may be over the workers heard so far; expiry, cap and server step.
    """

    m: int
    server_lr: float = 1.0
    population: int | None = None
    step: Step = field(default_factory=SgdStep)
    expire_after: int | None = None
    cap: int | None = None

    def __post_init__(self) -> None:
        check_settings("AfaCs", self.m, self.server_lr)
        for name in ("population", "expire_after", "cap"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"AfaCs needs {name} >= 1, got {name}={value}.")

    @property
    def remembers(self) -> int | None:
        return self.cap

    def begin(self, params: Vector) -> AfaCsState:
        return AfaCsState(
            params,
            version=0,
            rows=WorkerRows(params),
            total=zeros(params, double=True),
            count=0,
            moments=self.step.init(params),
        )

    def fold(self, state: AfaCsState, update: Update) -> None:
        self._check_room(state, [update.worker])
        self._make_room(state, update.worker)
        self._replace(state, [(update.worker, float(update.local_lr), update.direction)])

    def receive_many(self, state: AfaCsState, block: Updates) -> AfaCsState:
        """As in ``Rule``; room that expiry would make for M is not counted on."""
        check(block, params=state.params, version=versions_met(self, state, block))
        self._check_room(state, block.workers)
        updates = list(zip(block.workers, block.local_lrs.tolist(), block.directions, strict=True))
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

    def forget(self, state: AfaCsState, worker: str) -> bool:
        """Drop a worker's row, as on revocation; the next step is without it."""
        known = worker in state.rows
        if known:
            take_away(state.total, state.rows[worker])
            state.rows.remove(worker)
        if not len(state.rows):
            state.total[:] = 0  # not the rounding that the last row leaves behind
        return known

    def next_params(self, state: AfaCsState) -> Vector:
        self._expire(state)
        vectors, by = (state.params, state.total, state.moments), max(1, len(state.rows))
        return stepped(*vectors, self.population or by, self.step, self.server_lr, clear=False)

    @staticmethod
    def _replace(state: AfaCsState, updates: Sequence[tuple[str, float, Vector]]) -> None:
        """Fold (worker, local_lr, direction), no more of them than the next step waits for."""
        rows, version = state.rows, state.version
        exchanges = []
        for worker, local_lr, direction in updates:
            known = worker in rows
            if not known:
                rows.put(worker, direction, version)  # to have a row that can be written to
            exchanges.append(Exchange(rows[worker], known, direction, local_lr))
        exchange(state.total, exchanges)
        for (worker, _, _), each in zip(updates, exchanges, strict=True):
            rows.put(worker, each.row, version)

    def _expire(self, state: AfaCsState) -> None:
        if self.expire_after is None:
            return
        while len(state.rows):
            worker, heard = state.rows.longest_silent()
            if state.version - heard <= self.expire_after:
                return
            self.forget(state, worker)

    def _make_room(self, state: AfaCsState, worker: str) -> None:
        """Let the worker that was silent for the longest go where a newcomer has no place."""
        full = self.cap is not None and len(state.rows) >= self.cap
        if full and worker not in state.rows:
            self.forget(state, state.rows.longest_silent()[0])

    def _check_room(self, state: AfaCsState, workers: Sequence[str]) -> None:
        """Refuse a worker beyond the M that the mean is over, unless ``cap`` keeps them to M."""
        if self.population is None or len(state.rows) + len(workers) <= self.population:
            return
        if self.cap is not None and self.cap <= self.population:
            return
        newcomers = {worker for worker in workers if worker not in state.rows}
        if len(state.rows) + len(newcomers) > self.population:
            raise UpdateRefused(
                f"AfaCs is for a population of {self.population} workers and remembers "
                f"{len(state.rows)}; {sorted(newcomers)[0]!r} would be one too many: raise "
                "population."
            )
