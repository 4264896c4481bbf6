"""What Ringleader and Malenia share: the mean of each worker's updates, in rounds.

A round steps only once all workers were heard in it. What comes too late for a round may go to the
table of the next one, so there are two tables, used in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from anarchic.core.arrays import times, zeros
from anarchic.core.rows import WorkerRows
from anarchic.core.rule import RuleState, SteppingRule
from anarchic.core.rules.buffer import check_settings
from anarchic.core.rules.mifa import Names
from anarchic.core.steps import SgdStep, Step, stepped
from anarchic.core.types import Update, Vector
from anarchic.errors import ConfigError

NOW, NEXT = 0, 1  # the tables of this round and of the next one


@dataclass
class MeansState(RuleState):
    """Two tables. A row counts in the table of a round if it was put since that was opened."""

    even: WorkerRows = field(kw_only=True)  # worker -> its mean, in the rounds 0, 2, ...
    odd: WorkerRows = field(kw_only=True)  # and in the rounds 1, 3, ...
    sent: WorkerRows = field(kw_only=True)  # worker -> how many updates are in each of the two
    total: Vector = field(kw_only=True)  # sum of the means of this round; float64
    total_next: Vector = field(kw_only=True)
    moments: dict[str, Vector] = field(kw_only=True)  # of the server step
    gone: Names = field(default_factory=Names)  # forgotten: nobody waits for them
    round: int = 0
    since: int = 0  # the version in which this round's table was opened
    since_next: int = 0  # and the next one's
    heard: int = 0  # workers in this round's table
    heard_next: int = 0
    due: bool = False  # whether the update that was just folded makes a step


@dataclass(frozen=True)
class MeansRule(SteppingRule[MeansState]):
    """Every arrival makes a version; a rule says which of them make a step.

    ``population`` is M: a round waits for M workers, and for all that were heard in earlier rounds
    (None: for these alone). Nobody waits for a worker that was forgotten, as on revocation.
    ``expire_after`` forgets a worker that was silent for more than this many versions, and from
    then on in the run M no longer counts: so nobody holds a round up for longer.
    """

    server_lr: float = 1.0
    population: int | None = None
    step: Step = field(default_factory=SgdStep)
    expire_after: int | None = None

    def __post_init__(self) -> None:
        rule = type(self).__name__
        check_settings(rule, 1, self.server_lr)
        for name in ("population", "expire_after"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{rule} needs {name} >= 1, got {name}={value}.")

    @property
    def waits(self) -> str | None:
        if self.expire_after is not None:
            return None
        return (
            f"{type(self).__name__} makes no step until every worker that it knows was heard in "
            "the round, also one that never comes again: bound that with --expire-after N "
            "(versions; 'anarchic set STORE expire_after=N' in a run), or revoke its token."
        )

    @property
    def m(self) -> int:
        return 1

    def begin(self, params: Vector) -> Any:
        return MeansState(params, **self._first(params))

    def _first(self, params: Vector) -> dict[str, Any]:
        numbers = WorkerRows(zeros(params, (2,), double=True))
        tables = {"even": WorkerRows(params), "odd": WorkerRows(params), "sent": numbers}
        sums = {name: zeros(params, double=True) for name in ("total", "total_next")}
        return {**tables, **sums, "moments": self.step.init(params)}

    def forget(self, state: Any, worker: str) -> bool:
        for which in (NOW, NEXT):
            if self._is_in(state, worker, which):
                self._count(state, which, -1, -self._table(state, which)[worker])
        known = super().forget(state, worker)
        if self.population is None or worker in state.gone.names:
            return known
        state.gone.names.add(worker)
        return True

    def _join(self, state: Any, update: Update, which: int = NOW) -> int:
        """Let an update join its worker's mean; how many are in that by now."""
        worker, table = update.worker, self._table(state, which)
        row = times(update.direction, float(update.local_lr), state.params)
        place = (state.round + which) % 2
        self._get_to_know(state, worker)
        sent = state.sent[worker]
        if self._is_in(state, worker, which):
            before, sent[place] = table[worker], sent[place] + 1
            row = before + (row - before) / float(sent[place])
            self._count(state, which, -1, -before)  # exactly what was added
        else:
            sent[place] = 1
        self._count(state, which, 1, row)
        table.put(worker, row, state.version)
        state.sent.put(worker, sent, state.version)
        return int(sent[place])

    def _get_to_know(self, state: Any, worker: str) -> None:
        """From now on rounds wait for this worker."""
        sent = state.sent[worker] if worker in state.sent else zeros(state.total, (2,))
        state.sent.put(worker, sent, state.version)
        state.gone.names.discard(worker)

    def _expire(self, state: Any) -> None:
        """Forget who was silent for too long."""
        while self.expire_after is not None and len(state.sent):
            worker, heard = state.sent.longest_silent()
            if state.version - heard <= self.expire_after:
                return
            self.forget(state, worker)

    def _step(self, state: Any) -> Vector:
        """A step along the mean of the workers' means."""
        vectors, by = (state.params, state.total, state.moments), max(1, state.heard)
        return stepped(*vectors, by, self.step, self.server_lr, clear=False)

    def _all_heard(self, state: Any) -> bool:
        enough = state.heard + len(state.gone.names) >= (self.population or 0)
        if self.expire_after is not None:  # who was never heard has no name to be forgotten by
            enough = enough or state.version > self.expire_after
        return enough and bool(state.heard == len(state.sent))

    def _end_round(self, state: Any) -> None:
        """The next table becomes this round's, and a new one is opened after it."""
        state.round += 1
        state.total, state.total_next = state.total_next, zeros(state.total)
        state.heard, state.heard_next = state.heard_next, 0
        state.since, state.since_next = state.since_next, state.version + 1

    def _table(self, state: Any, which: int) -> WorkerRows:
        table: WorkerRows = state.odd if (state.round + which) % 2 else state.even
        return table

    def _is_in(self, state: Any, worker: str, which: int) -> bool:
        table, since = self._table(state, which), (state.since, state.since_next)[which]
        return worker in table and table.heard_at(worker) >= since

    def _count(self, state: Any, which: int, workers: int, change: Vector) -> None:
        if which == NOW:
            state.total += change
            state.heard += workers
        else:
            state.total_next += change
            state.heard_next += workers
