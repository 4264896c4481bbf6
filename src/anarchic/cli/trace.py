"""``--trace``: recorded participation; and what of it was in vain."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from anarchic import wire
from anarchic.cli.options import Given
from anarchic.cli.show import number, percent
from anarchic.errors import RunError
from anarchic.participation.timetable import Timetable
from anarchic.sim.settings import Settings

_WORDS = {
    "refused": "refused updates",
    "retried": "of these retried",
    "skipped": "skipped visits",
    "stopped": "stopped visits",
    "lost": "lost visits",
    "local_steps": "local steps in vain",
    "bytes": "bytes in vain, down and up",
}


def with_clock(given: Given, trace: str | None) -> Given:
    """The options with a participation in continuous time, if a file of visits takes its place.

    Then the settings of a server on which arrivals depend can be given with it.
    """
    if trace is None or not is_visits(trace):
        return given
    return {"participation": "exponential", **given}


def is_visits(trace: str) -> bool:
    """Whether it is a file of visits, by its name."""
    return Path(trace).suffix.lower() == ".csv"


def read_trace(where: str, settings: Settings) -> Timetable:
    """The timetable in a file of visits, in a run directory, or in the store of a server."""
    path = Path(where)
    if is_visits(where):
        from anarchic.sim.traced import table_of_visits

        return table_of_visits(path, settings)
    if path.is_dir():
        path = path / "timetable.safetensors"
    if path.suffix == ".safetensors":
        return Timetable.from_arrays(*wire.read(path))
    from anarchic.server.replay import timetable_of
    from anarchic.server.store import open_store

    if "://" not in where and not path.is_file():
        raise RunError(
            f"There is no trace {where}: give a server's store, a run directory or a CSV file."
        )
    with closing(open_store(where)) as store:
        return timetable_of(store)


def wasted_facts(total: Mapping[str, int] | None, updates: int) -> list[tuple[str, str]]:
    """What was in vain, beside the ``updates`` that were folded: shares of all sent or visits."""
    found = {name: count for name, count in (total or {}).items() if count}
    refused = found.get("refused", 0)
    sent = updates + refused
    visits = sent + sum(found.get(name, 0) for name in ("skipped", "stopped", "lost"))
    bases = {"refused": (sent, "updates sent"), "retried": (refused, "refused updates")}
    bases |= dict.fromkeys(("skipped", "stopped", "lost"), (visits, "visits"))
    rows = []
    for name, count in found.items():
        base, of = bases.get(name, (0, ""))
        share = f", {percent(count / base)} of the {of}" if base else ""
        rows.append((_WORDS[name], f"{number(count)}{share}"))
    return rows
