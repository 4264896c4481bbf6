"""What an operator sees of a run: where it stands, and what each worker did.

``overview`` reads a store, with or without a server at work; ``listed`` is what a server answers.
Both give the records that ``anarchic status --json`` prints: see docs/operate.md.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from math import inf, isfinite
from statistics import median
from typing import Any

from sqlalchemy import Connection, func, select

from anarchic.core.validation import check_choice
from anarchic.errors import RunError
from anarchic.server import records
from anarchic.server import tables as t
from anarchic.server.accounts import operators
from anarchic.server.activity import CHUNK, Head, Refusals, count_next, read_activity
from anarchic.server.commands import (
    Command,
    condition,
    is_withdrawn,
    read_all,
    rules_after,
    withdrawn,
)
from anarchic.server.evaluate import shown
from anarchic.server.records import read_json
from anarchic.server.refold import counted_in, stretches
from anarchic.server.refusals import LATER
from anarchic.server.runs import stored_layout, stored_rules
from anarchic.server.settings import served_rule
from anarchic.server.store import Store
from anarchic.server.tally import Tally, quantile, ratio_in, staleness_in

FORMAT = 1  # of what is shown; raised when a name changes its meaning
LATELY_S = 60.0  # over which the rate is taken
YOUNG_S = 1.0  # the least time over which it is
NEWEST = 500  # updates from which the rate is taken
MOST_COMMANDS = 100  # that wait, and rollbacks, in one answer
SORTS = ("share", "updates", "seen", "staleness", "norm", "loss", "refused", "worker")
FEW = 3  # workers: among fewer nobody is unusual
FAR = 10.0  # times the others' norm, or a tenth of it
OTHER_LOSS, LATE, MUCH = 3.0, 4.0, 5.0  # times the others' loss, staleness and share
TOO_FAST = "slow_down"  # the code of a worker that sends more than it may per minute
_U = t.updates.c

Record = dict[str, Any]


def overview(store: Store, now_s: float | None = None) -> Record:
    """Where the run in a store stands, and what its workers did until now."""
    now_s = time.time() if now_s is None else now_s
    with store.reading() as connection:
        run = records.find_run(connection)
        if run is None:
            raise RunError("The store holds no run yet: begin one with `anarchic serve --init`.")
        known = read_all(connection)
        rules, layout = rules_after(stored_rules(run), known), stored_layout(run)
        rule = served_rule(rules, layout)
        head, doors = read_activity(connection)
        while len(count_next(connection, head.tallies, {}).seqs) == CHUNK:
            pass  # what is in the trace, and not in the table yet
        waiting, staff = _waiting(connection), operators(connection)
        evaluation = _newest_evaluation(connection, withdrawn(known))
        facts = {
            "format": FORMAT,
            "run": run.settings["run"],
            "state": condition(known),
            "rule": rules.rule,
            "m": rule.m,
            "server_lr": rules.server_lr,
            "parameters": layout.dim,
            "version": run.version,
            "rate_per_s": _rate(connection, run.trace_from, now_s),
            "buffered": sum(waiting.values()),
            "leader": head.leader,
            "updates": {
                **_updates(run.folded, head, waiting),
                "withdrawn": _withdrawn(connection, run, known),
            },
            "refusals": dict(sorted(head.refused.items())),
            "rollbacks": [c.told() for c in known if withdrawn([c])][-MOST_COMMANDS:],
            "commands": [c.told() for c in known if c.outcome == "waiting"][:MOST_COMMANDS],
        }
    doors = {name: door for name, door in doors.items() if name not in staff}
    workers, others = _workers(head, doors, waiting)
    return {
        **facts,
        "evaluation": evaluation,
        "workers": sort_workers(workers, SORTS[0]),
        "others": others,
        "at_s": now_s,
    }


def listed(store: Store, *, sort: str = SORTS[0], first: int = 0, limit: int = 100) -> Record:
    """A page of what ``overview`` says: ``limit`` workers from the ``first`` on."""
    check_choice("sort", sort, SORTS)
    found = overview(store)
    workers = sort_workers(found["workers"], sort)
    page = {"first": first, "listed": len(workers), "workers": workers[first : first + limit]}
    return {**found, **page}


def _waiting(connection: Connection) -> Counter[str]:
    query = select(_U.worker, func.count()).where(_U.order.is_(None)).group_by(_U.worker)
    found = connection.execute(query).all()
    return Counter({row[0]: row[1] for row in found})


def _newest_evaluation(connection: Connection, gone: Sequence[tuple[int, int]]) -> Record | None:
    """Of a version that was not withdrawn."""
    column, below = t.evaluations.c.version, 2**62
    while True:
        query = select(t.evaluations).where(column < below).order_by(column.desc()).limit(1)
        row = connection.execute(query).first()
        if row is None:
            return None
        if not is_withdrawn(gone, row.version):
            return shown(row.version, read_json(row.metrics, "evaluation"))
        below = min(first for first, last in gone if first <= row.version <= last)


def _withdrawn(connection: Connection, run: records.StoredRun, known: Sequence[Command]) -> int:
    """Updates that versions hold, but no longer the newest: as far as the trace goes back."""
    if not withdrawn(known):
        return 0
    count = select(func.count()).select_from(t.updates)
    made = connection.execute(count.where(_U.version > records.SET_ASIDE)).scalar() or 0
    parts = stretches(known, run.version, frozenset())
    left = (connection.execute(count.where(counted_in(part))).scalar() or 0 for part in parts)
    return int(made - sum(left))


def _rate(connection: Connection, trace_from: int, now_s: float) -> float:
    """Accepted updates per second, over the last minute, or less where there were many.

    A run whose first update came within the minute has only the time since then.
    """
    query = select(_U.received_s).order_by(_U.seq.desc()).limit(NEWEST)
    newest: list[float] = list(connection.execute(query).scalars())
    recent = [s for s in newest if s > now_s - LATELY_S]
    if len(recent) == NEWEST:
        span_s = now_s - min(recent)
    elif recent and len(recent) == len(newest) and not trace_from:
        span_s = max(now_s - min(recent), YOUNG_S)
    else:
        span_s = LATELY_S
    return len(recent) / max(span_s, 1e-3)


def _updates(folded: int, head: Head, waiting: Counter[str]) -> dict[str, int]:
    tallies = [*head.tallies.workers.values(), head.tallies.rest]
    aside = sum(tally.set_aside for tally in tallies)
    return {
        "accepted": folded + waiting.total(),
        "duplicate": head.duplicates,
        "refused": sum(head.refused.values()),
        "folded": folded - aside,
        "clipped": sum(tally.clipped for tally in tallies),
        "set_aside": aside,
    }


def _workers(
    head: Head, doors: Mapping[str, Refusals], waiting: Mapping[str, int]
) -> tuple[list[Record], Record | None]:
    """Each worker that is kept one by one, and all others together."""
    tallies, total, nobody = head.tallies.workers, head.tallies.influence, Refusals()
    found = []
    for name in {*tallies, *doors, *waiting} - {""}:
        door = doors.get(name, nobody)
        one = _shown(tallies.get(name, Tally()), total, door, waiting.get(name, 0))
        found.append({"worker": name, **one})
    _mark(found, {n for n, tally in tallies.items() if tally.set_aside > tally.rolled_back})
    rest, unknown = head.tallies.rest, doors.get("", nobody)
    if not (rest.workers or unknown.codes):
        return found, None
    return found, {"workers": rest.workers, **_shown(rest, total, unknown, 0)}


def _shown(tally: Tally, total: float, door: Refusals, waiting: int) -> Record:
    late = [quantile(tally.staleness, share) for share in (0.5, 0.95)]
    norms = [quantile(tally.norms, share) for share in (0.5, 0.95)]
    seen_s = max(tally.seen_s, door.seen_s)
    return {
        "updates": tally.updates,
        "waiting": waiting,
        "clipped": tally.clipped,
        "set_aside": tally.set_aside,
        "share": tally.influence / total if 0 < total < inf else 0.0,
        "staleness_p50": None if late[0] is None else staleness_in(late[0]),
        "staleness_p95": None if late[1] is None else staleness_in(late[1]),
        "norm_last": _number(tally.norm_last),
        "norm_p50": None if norms[0] is None else ratio_in(norms[0]),
        "norm_p95": None if norms[1] is None else ratio_in(norms[1]),
        "loss_last": _number(tally.loss_last),
        "loss_mean": _number(tally.loss_sum / tally.losses if tally.losses else None),
        "refused": dict(sorted(door.codes.items())),
        "first_s": _number(tally.first_s),
        "seen_s": seen_s if seen_s > 0 else None,
    }


def _number(value: float | None) -> float | None:
    """JSON has no infinity, and sums of what workers tell may have."""
    return value if value is not None and isfinite(value) else None


def _mark(workers: Sequence[Record], not_finite: Set[str]) -> None:
    """Say of each worker in what it is unlike the others; that of a rollback is no mark."""
    reporting = [worker for worker in workers if worker["updates"]]
    late = _median(reporting, "staleness_p95")
    loss = _median(reporting, "loss_last")
    fair = 1 / len(reporting) if reporting else 1.0
    for worker in workers:
        marks, several = [], len(reporting) >= FEW
        norms = [n for n in (worker["norm_last"], worker["norm_p50"]) if n is not None]
        if several and any(n > FAR or n < 1 / FAR for n in norms):
            marks.append("norm")
        if several and worker["share"] > min(MUCH * fair, 0.5):
            marks.append("share")
        if several and (worker["staleness_p95"] or 0) > max(LATE * late, LATE):
            marks.append("stale")
        if several and 0 < OTHER_LOSS * loss < (worker["loss_last"] or 0):
            marks.append("loss")
        if worker["clipped"]:
            marks.append("clipped")
        if worker["worker"] in not_finite:
            marks.append("set aside")
        if _refused(worker) > worker["updates"]:
            marks.append("refused")
        if worker["refused"].get(TOO_FAST, 0) > worker["updates"]:
            marks.append("too fast")
        worker["marks"] = marks


def _refused(worker: Record) -> int:
    """Without those that were told to come again later."""
    return sum(count for code, count in worker["refused"].items() if code not in LATER)


def _median(workers: Sequence[Record], name: str) -> float:
    known = [worker[name] for worker in workers if worker[name] is not None]
    return float(median(known)) if known else 0.0


_BY: dict[str, Callable[[Record], Any]] = {
    "share": lambda w: (-w["share"], -w["updates"]),
    "updates": lambda w: -w["updates"],
    "seen": lambda w: -(w["seen_s"] or 0.0),
    "staleness": lambda w: -(w["staleness_p95"] or 0),
    "norm": lambda w: -(w["norm_last"] or 0.0),
    "loss": lambda w: -(w["loss_last"] or 0.0),
    "refused": lambda w: (-_refused(w), -sum(w["refused"].values())),
    "worker": lambda w: w["worker"],
}


def sort_workers(workers: Sequence[Record], by: str) -> list[Record]:
    """The largest first, or by name."""
    return sorted(sorted(workers, key=lambda w: w["worker"]), key=_BY[by])
