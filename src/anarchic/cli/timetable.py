"""``anarchic timetable``: who reports when under participation settings, without training."""

from __future__ import annotations

from pathlib import Path

import typer

from anarchic.cli.options import Given, examples
from anarchic.cli.settings import settings_from, takes
from anarchic.cli.show import number, percent, print_facts
from anarchic.cli.trace import read_trace, wasted_facts, with_clock

EPILOG = examples(
    "anarchic timetable --max-staleness 4 --dynamic-steps",
    "anarchic timetable --workers 1000 --m 20 --participation exponential --slow-share 0.3 "
    "--out timetable.png",
    "anarchic timetable --participation exponential --refuse-staleness 3 --retries 5",
    "anarchic timetable --trace log.csv --max-concurrent 10",
)
_BAR = 30  # characters of the longest bar


_TAKEN = """
workers rule m local_steps dynamic_steps participation max_staleness replace arrival_probs idle_s
step_s time_distribution slow_share slow_factor lost_share timeout_s availability speeds join leave
max_concurrent refuse_staleness retries step_every_s server_picks skip_unchanged rounds until_s
seed
"""
_OWN = """
Participation
  trace FILE: Recorded visits: a CSV file with the columns worker, pull_s, push_s, local_steps and,
    if visits were lost, lost; or a server's store, or the directory of a run.
    (default: the participation settings)
Options
  out FILE: Draw it to a .png, .svg or .pdf file. (default: not drawn)
"""


@takes(_TAKEN, _OWN)
def timetable(given: Given, trace: str | None = None, out: Path | None = None) -> None:
    """Show who reports when, how late and after how many local steps; nothing is trained.

    It is the timetable of `anarchic simulate` with the same options and seed.
    """
    from anarchic.report.timetable_summary import plot_timetable, summarise
    from anarchic.sim.settings import WORKERS, make_table
    from anarchic.sim.traced import beginning

    settings = settings_from(with_clock(given, trace))
    if trace is None:
        table = make_table(settings, WORKERS if settings.workers is None else settings.workers)
    else:
        table = beginning(read_trace(trace, settings), settings.rounds)
    found = summarise(table)
    of = "at most " if table.stepped is not None else ""
    facts = [
        ("workers", number(found.workers)),
        ("updates", f"{number(found.updates)}: {number(found.rounds)} rounds of {of}{found.m}"),
        ("staleness", f"{number(found.staleness_mean)} on average, {found.staleness_max} at most"),
        *_bars(found.staleness, found.updates),
        ("local steps", f"{number(found.steps_mean)} on average"),
        *_bars(found.steps, found.updates),
        (
            "updates per worker",
            f"{percent(found.share_min)} to {percent(found.share_max)} of all; equal shares would "
            f"be {percent(1 / found.workers)}; {number(found.silent)} never sent one",
        ),
    ]
    if found.virtual_s is not None:
        took = f"{number(found.virtual_s, 's')}, {number(found.round_s, 's')} per round"
        facts.insert(2, ("virtual time", took))
    facts += wasted_facts(None if table.wasted is None else table.wasted.total, found.updates)
    print_facts(facts, title="Timetable")
    if out is not None:
        typer.echo(f"Drawn in {plot_timetable(table, out)}.")


def _bars(bins: list[tuple[str, int]], total: int) -> list[tuple[str, str]]:
    most = max(count for _, count in bins)
    return [
        (f"  {label}", f"{'█' * round(_BAR * count / most):<{_BAR}} {percent(count / total)}")
        for label, count in bins
    ]
