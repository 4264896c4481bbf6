"""A picture of a run: records of a bounded size, made of what an overview and a window say.

The parts, each a name of the record:

- ``head``: where the run stands, as ``anarchic status`` says it, without the workers
- ``versions``: those of a store that can be gone back to, with their times and a metric
- ``curves``: what was measured, by version and time; ``told``: the loss that workers told
- ``pace``: updates per second over the whole run, and lately
- ``workers``: the workers that are listed, each with a row of marks
- ``everyone``: all workers together: the heat strip, and how evenly influence is shared
- ``histograms``: staleness, local steps and norms of the newest updates
- ``theory``: what the theorems say of the arrivals
- ``settings``: what the run was started with
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from anarchic.page.influence import influence

FORMAT = 1
LISTED = 40  # workers
TOP, UNUSUAL = 16, 12  # of them, by influence and with marks; the others are those heard last
POINTS = 240  # of a curve
MOST_METRICS = 12
APART = (  # columns of metrics.csv that measure no model: clocks and counts
    *("round", "version", "virtual_s", "updates", "local_steps", "train_seconds", "test_samples"),
    *("refused", "steps_in_vain", "clipped"),
)
HEAD = (  # of an overview
    *("run", "state", "rule", "m", "server_lr", "parameters", "version", "rate_per_s", "buffered"),
    *("leader", "updates", "refusals", "commands", "evaluation", "at_s"),
)

Record = dict[str, Any]


def head(overview: Mapping[str, Any], **more: Any) -> Record:
    """Where the run stands; refusals are the most frequent ones."""
    found = {name: overview.get(name) for name in HEAD}
    most = sorted((overview.get("refusals") or {}).items(), key=lambda item: -item[1])
    commands = (overview.get("commands") or [])[:10]
    return {"format": FORMAT, **found, "refusals": dict(most[:20]), "commands": commands, **more}


def listed(workers: Sequence[Record]) -> list[Record]:
    """At most ``LISTED`` workers of all: top by influence, unusual, and heard last."""
    chosen: dict[str, Record] = {}
    by_share = sorted(workers, key=lambda w: (-w["share"], -w["updates"], w["worker"]))
    unusual = [w for w in by_share if w["marks"]]
    unusual.sort(key=lambda w: -(w["seen_s"] or 0.0))
    recent = sorted(workers, key=lambda w: -(w["seen_s"] or 0.0))
    for some, most in ((by_share, TOP), (unusual, TOP + UNUSUAL), (recent, LISTED)):
        for worker in some:
            if len(chosen) >= most:
                break
            chosen.setdefault(worker["worker"], worker)
    return [w for w in by_share if w["worker"] in chosen]


def everyone(workers: Sequence[Record], others: Mapping[str, Any] | None) -> Record:
    """Of all workers: their number, and how evenly influence is shared.

    Others are added up, and one that comes again is counted again: then the number is a bound.
    """
    rest = others or {"workers": 0, "share": 0.0}
    reporting = [w["share"] for w in workers if w["updates"]]
    unusual = sum(bool(w["marks"]) for w in workers)
    known: Record = {"known": len(workers) + rest["workers"], "unusual": unusual}
    known["exact"] = not rest["workers"] or bool(rest.get("exact"))
    return {**known, "influence": influence(reporting, rest["workers"], rest["share"])}


def thinned(rows: Sequence[Any], most: int = POINTS) -> list[Any]:
    """At most ``most`` of them, evenly spaced, the first and the last among them."""
    if len(rows) <= most:
        return list(rows)
    step = (len(rows) - 1) / (most - 1)
    return [rows[round(place * step)] for place in range(most)]


def curves(rows: Sequence[Mapping[str, Any]]) -> Record:
    """Metrics by version and time: ``round`` and ``virtual_s`` of rows as in metrics.csv."""
    names = metrics_first(name for row in rows for name in row)[:MOST_METRICS]
    kept = [
        [row.get("round"), rounded(row.get("virtual_s")), *(rounded(row.get(n)) for n in names)]
        for row in thinned(rows)
    ]
    return {"metrics": names, "rows": kept, "count": len(rows)}


def metrics_first(columns: Iterable[str]) -> list[str]:
    """The columns that are metrics, each once: accuracy, loss, and then the others."""
    names = dict.fromkeys(name for name in columns if name not in APART)
    return sorted(names, key=lambda name: (name != "accuracy", name != "loss"))


def rounded(value: Any) -> float | None:
    """Six digits: what a screen can show; JSON has no infinity."""
    if value is None or not isfinite(value):
        return None
    return float(f"{float(value):.6g}")
