"""A live run as a recorded one: its evaluations by version, with updates, local steps and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from pathlib import Path
from typing import Any, final

from sqlalchemy import Connection, func, select
from sqlalchemy.engine import make_url

from anarchic.core.factory import RuleSettings
from anarchic.errors import RunError
from anarchic.server import records
from anarchic.server import tables as t
from anarchic.server.activity import read_activity
from anarchic.server.commands import condition, read_all, rules_after
from anarchic.server.records import read_json
from anarchic.server.runs import stored_rules
from anarchic.server.store import Store

MOST = 1_000_000  # evaluations
_U = t.updates.c


@final
@dataclass(frozen=True)
class History:
    """What became of a run so far; ``rows`` has one row per evaluation, the oldest first.

    A row has the names of metrics.csv: ``round`` is the version, ``virtual_s`` the wall time from
    the first update of the run to the last one in that version. What a compacted trace no longer
    says is None.
    """

    rules: RuleSettings
    rows: list[dict[str, float | int | None]]
    end: dict[str, float | int | None]  # where it stands, as a row without metrics
    ended: bool  # by an operator
    local_lrs: tuple[float, ...]  # the smallest and the largest of all updates


def store_name(where: object) -> str:
    """What a store is called in a table or a picture: without its address or password."""
    text = str(where)
    if "://" not in text or text.startswith("sqlite:"):
        return Path(text).name
    return str(make_url(text).database or "run")


def history(store: Store) -> History:
    """Read the evaluations of a run, and where it stood at each."""
    with store.reading() as connection:
        run = records.find_run(connection)
        if run is None:
            raise RunError("The store holds no run yet: begin one with `anarchic serve --init`.")
        known = read_all(connection)
        query = select(t.evaluations).order_by(t.evaluations.c.version).limit(MOST)
        found = connection.execute(query).all()
        steps = _steps(connection, whole=run.trace_from == 0)
        low, high = connection.execute(select(func.min(_U.local_lr), func.max(_U.local_lr))).one()
    rows: list[dict[str, float | int | None]] = []
    place = 0
    for evaluation in found:
        while place < len(steps) - 1 and steps[place + 1].version <= evaluation.version:
            place += 1
        metrics = read_json(evaluation.metrics, "evaluation")
        numbers = {name: value if isfinite(value) else None for name, value in metrics.items()}
        rows.append({**numbers, "round": evaluation.version, **steps[place].row})
    rates = () if low is None else (float(low), float(high))
    ended = condition(known) == "ended"
    end = {**steps[-1].row, "round": run.version}
    return History(rules_after(stored_rules(run), known), rows, end, ended, rates)


@final
@dataclass(frozen=True)
class _Step:
    version: int
    row: dict[str, Any]


def _steps(connection: Connection, *, whole: bool) -> Sequence[_Step]:
    """What had happened by each version that has updates in the trace."""
    latest = (func.max(_U.order), func.max(_U.received_s), func.sum(_U.local_steps))
    query = select(_U.version, *latest).where(_U.version > 0).group_by(_U.version)
    found = connection.execute(query.order_by(_U.version)).all()
    head, _ = read_activity(connection)
    tallies = [*head.tallies.workers.values(), head.tallies.rest]
    oldest = select(func.min(_U.received_s))
    moments = [tally.first_s for tally in tallies] + [connection.execute(oldest).scalar()]
    first_s = min((s for s in moments if s is not None and isfinite(s)), default=0.0)
    counted = accumulate(int(row[3]) for row in found)
    start = {"virtual_s": 0.0, "updates": 0, "local_steps": 0}
    unknown: dict[str, Any] = dict.fromkeys(start)
    return [_Step(0, start if whole else unknown)] + [
        _Step(
            row[0],
            {
                "virtual_s": row[2] - first_s,
                "updates": row[1] + 1,
                "local_steps": steps if whole else None,
            },
        )
        for row, steps in zip(found, counted, strict=True)
    ]
