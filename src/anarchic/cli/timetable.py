"""``anarchic timetable``: who reports when under participation settings, without training."""

from __future__ import annotations

from pathlib import Path

import typer

from anarchic.cli.options import Given, examples
from anarchic.cli.settings import settings_from, takes
from anarchic.cli.show import number, percent, print_facts

EPILOG = examples(
    "anarchic timetable --max-staleness 4 --dynamic-steps",
    "anarchic timetable --workers 1000 --m 20 --participation exponential --slow-share 0.3 "
    "--out timetable.png",
)
_BAR = 30  # characters of the longest bar


_TAKEN = """
workers rule m local_steps dynamic_steps participation max_staleness replace arrival_probs idle_s
step_s time_distribution slow_share slow_factor lost_share timeout_s availability rounds until_s
seed
"""


@takes(_TAKEN, "  out FILE: Draw it to a .png, .svg or .pdf file. (default: not drawn)")
def timetable(given: Given, out: Path | None = None) -> None:
    """Show who reports when, how late and after how many local steps; nothing is trained.

    It is the timetable of `anarchic simulate` with the same options and seed.
    """
    from anarchic.report.timetable_summary import plot_timetable, summarise
    from anarchic.sim.settings import WORKERS, make_table

    settings = settings_from(given)
    table = make_table(settings, WORKERS if settings.workers is None else settings.workers)
    found = summarise(table)
    facts = [
        ("workers", number(found.workers)),
        ("updates", f"{number(found.updates)}: {number(found.rounds)} rounds of {found.m}"),
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
    print_facts(facts, title="Timetable")
    if out is not None:
        typer.echo(f"Drawn in {plot_timetable(table, out)}.")


def _bars(bins: list[tuple[str, int]], total: int) -> list[tuple[str, str]]:
    most = max(count for _, count in bins)
    return [
        (f"  {label}", f"{'█' * round(_BAR * count / most):<{_BAR}} {percent(count / total)}")
        for label, count in bins
    ]
