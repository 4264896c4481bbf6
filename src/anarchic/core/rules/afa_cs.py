"""AFA-CS: anarchic federated averaging for a few silos, with a memory of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from anarchic.core.arrays import zeros
from anarchic.core.rule import check_block, start, versions_met, vet
from anarchic.core.rules.buffer import check_settings
from anarchic.core.rules.coded_rows import ByteRows, HalfRows
from anarchic.core.rules.mapped_rows import MappedRows
from anarchic.core.rules.rows import Exchange, MemoryRows, Rows, exchange, take_away
from anarchic.core.steps import SgdStep, Step, stepped
from anarchic.core.types import EMPTY, Update, Updates, Vector
from anarchic.errors import ConfigError, UpdateRefused

ROWS: dict[str, Callable[[Vector], Rows]] = {
    "memory": MemoryRows,
    "mapped": MappedRows,
    "float16": HalfRows,
    "int8": ByteRows,
}


@dataclass(slots=True)
class AfaCsState:
    """Parameters, version, each worker's last row, and the sum of the rows."""

    params: Vector
    version: int
    rows: Rows  # worker -> eta_L_i * G_i
    total: Vector  # sum of the rows; float64, so that a million replacements do not drift
    count: int  # updates since the last step
    moments: dict[str, Vector]  # of the server step
    extras: Mapping[str, Vector] = field(default_factory=lambda: EMPTY)


@final
@dataclass(frozen=True, slots=True)
class AfaCs:
    """Anarchic federated averaging, cross-silo form.

    The server remembers the last update of every worker. Every ``m`` new ones it steps along the
    mean of all that it remembers, so a worker that seldom reports counts as much as one that
    often does:

        x_{t+1} = x_t - eta * (1/M) * sum_{i in [M]} eta_L_i * G_i

    Symbols: ``m`` is m, ``server_lr`` is eta, ``population`` is M (None: the workers heard so
    far), the rows are eta_L_i * G_i. An update costs O(d), whatever M is.
    ``rows`` makes the memory from the parameters, whose length, dtype and kind its rows have, or
    is a name in ``ROWS``; the sum is of the rows as they are kept there.
    ``expire_after`` forgets a worker that was silent for more than so many versions, ``cap`` the
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
    rows: str | Callable[[Vector], Rows] = "memory"

    def __post_init__(self) -> None:
        check_settings("AfaCs", self.m, self.server_lr)
        for name in ("population", "expire_after", "cap"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"AfaCs needs {name} >= 1, got {name}={value}.")
        if not callable(self.rows) and self.rows not in ROWS:
            raise ConfigError(f"AfaCs has no rows {self.rows!r}; it has {', '.join(ROWS)}.")

    def init(self, params: Vector) -> AfaCsState:
        params = start(params)
        make_rows = self.rows if callable(self.rows) else ROWS[self.rows]
        return AfaCsState(
            params,
            version=0,
            rows=make_rows(params),
            total=zeros(params, double=True),
            count=0,
            moments=self.step.init(params),
        )

    def receive(self, state: AfaCsState, update: Update) -> AfaCsState:
        vet(update, params=state.params, version=state.version)
        self._check_room(state, [update.worker])
        self._make_room(state, update.worker)
        return self._replace(state, [(update.worker, float(update.local_lr), update.direction)])

    def receive_many(self, state: AfaCsState, block: Updates) -> AfaCsState:
        """As in ``Rule``; room that expiry would make for M is not counted on."""
        versions = versions_met(state.version, state.count, self.m, len(block))
        check_block(block, params=state.params, versions=versions, oldest=0 * versions)
        self._check_room(state, block.workers)
        updates = list(zip(block.workers, block.local_lrs.tolist(), block.directions, strict=True))
        done = 0
        while done < len(updates):
            due = self.remaining(state)
            if self.cap is not None and len(state.rows) + due > self.cap:
                due = 1  # each may take the place of another
                self._make_room(state, updates[done][0])
            some = slice(done, done + due)
            state = self._replace(state, updates[some])
            done = some.stop
        return state

    @staticmethod
    def forget(state: AfaCsState, worker: str) -> AfaCsState:
        """Drop a worker's row, as on revocation; the next step is without it."""
        row = state.rows.get(worker)
        if row is not None:
            take_away(state.total, row)
            state.rows.remove(worker)
        if not len(state.rows):
            state.total[:] = 0  # not the rounding that the last row leaves behind
        return state

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr

    def remaining(self, state: AfaCsState) -> int:
        return self.m - state.count

    def flush(self, state: AfaCsState) -> AfaCsState:
        if state.count == 0:
            return state
        self._expire(state)
        heard = max(1, len(state.rows))
        state.params = stepped(state, self.population or heard, self.step, self.server_lr)
        state.version += 1
        state.count = 0
        return state

    def _replace(
        self, state: AfaCsState, updates: Sequence[tuple[str, float, Vector]]
    ) -> AfaCsState:
        """Fold (worker, local_lr, direction), no more of them than the next step waits for."""
        rows, version = state.rows, state.version
        exchanges = []
        for worker, local_lr, direction in updates:
            row = rows.get(worker)
            known = row is not None
            if not known:
                rows.put(worker, direction, version)  # to have a row that can be written to
                row = rows.get(worker)
            exchanges.append(Exchange(row, known, direction, local_lr))
        exchange(state.total, exchanges)
        for (worker, _, _), each in zip(updates, exchanges, strict=True):
            rows.put(worker, each.row, version)
        state.count += len(updates)
        return self.flush(state) if state.count == self.m else state

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
        if full and state.rows.get(worker) is None:
            self.forget(state, state.rows.longest_silent()[0])

    def _check_room(self, state: AfaCsState, workers: Sequence[str]) -> None:
        """Refuse a worker beyond the M that the mean is over, unless ``cap`` keeps them to M."""
        if self.population is None or len(state.rows) + len(workers) <= self.population:
            return
        if self.cap is not None and self.cap <= self.population:
            return
        newcomers = {worker for worker in workers if state.rows.get(worker) is None}
        if len(state.rows) + len(newcomers) > self.population:
            raise UpdateRefused(
                f"AfaCs is for a population of {self.population} workers and remembers "
                f"{len(state.rows)}; {sorted(newcomers)[0]!r} would be one too many: raise "
                "population."
            )
