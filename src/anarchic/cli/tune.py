"""``anarchic tune``: every rule gets the same number of tries."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from anarchic.cli import scripts, several
from anarchic.cli.options import Given, examples
from anarchic.cli.scripts import scripted
from anarchic.cli.several import grid_from, values_of
from anarchic.cli.show import print_table
from anarchic.errors import ConfigError
from anarchic.study.tuning import RANGES, Range, Tuned
from anarchic.study.tuning import tune as run_tune

EPILOG = examples(
    "anarchic tune --rule afa-cd,fedbuff --budget 4 --rounds 20 --out tuned/one",
    "anarchic tune --rule afa-cd,fedasync --budget 3 --seed 0-1 --new-seed 100-102 --rounds 20 "
    "--range server-lr=0.1:10 --range fedasync/rule-options.mixing=0.1:1 --out tuned/two",
    "anarchic compare tuned/two/final --group-by rule --test afa-cd fedasync --margin 0.05",
)
_USUAL = ", ".join(f"{n.replace('_', '-')}={low:g}:{high:g}" for n, (low, high) in RANGES.items())
_OWN = f"""
Tuning
  out DIR: Directory of the tuning: search has every run that was tried, final the best with new
    seeds.
  budget N: Settings that are tried for each rule, each with every --seed.
  range_ NAME=LOW:HIGH: Tune this setting between two values, on a log scale; RULE/NAME for one rule
    alone. May be repeated. (default: {_USUAL}
    and what a rule has in place of server-lr)
  new_seed N,...: Seeds of the final runs; none of them may be searched with.
  sampler NAME: How tries are chosen: random, or optuna, if that is installed.
  draw: Random seed of the search.
  choose_by NAME: The metric of validation data by which is chosen, such as loss.
  jobs N: Processes that train batches at the same time.
  at_once N: Runs that are trained as one batch. (default: 16, or fewer so that every process has
    some)
  retry: Run those again that failed. Diverged runs are results and stay.
"""


@scripted
@several.takes(_OWN)
def tune(
    given: Given,
    out: Path,
    budget: int = 30,
    range_: Sequence[str] | None = None,
    new_seed: str = "100-104",
    sampler: str = "random",
    draw: int = 0,
    choose_by: str = "accuracy",
    jobs: int = 1,
    at_once: int | None = None,
    retry: bool = False,
) -> None:
    """Tune rules with equal budgets on validation data, and run the best again on test data.

    A tenth of the training samples is set aside where a data set has no validation data.

    The same command goes on where it was cut off.
    """
    rules = given.get("rule")
    if rules is None:
        raise ConfigError("Which rules? Give them as --rule afa-cd,fedbuff.")
    grid = grid_from({name: value for name, value in given.items() if name != "rule"})
    if grid.varied:
        name = next(iter(grid.varied)).replace("_", "-")
        raise ConfigError(
            f"Tuning takes one value of --{name}: to tune it, give --range {name}=LOW:HIGH."
        )
    named: Any = sampler  # checked where it is used
    try:
        found = run_tune(
            grid.base, rule=values_of("--rule", rules, str), out=out, budget=budget,
            ranges=_ranges(range_ or ()), seed=grid.seeds,
            new_seed=values_of("--new-seed", new_seed, int), sampler=named, draw=draw,
            metric=choose_by, compute=grid.compute, jobs=jobs, at_once=at_once, retry=retry,
        )  # fmt: skip
    except KeyboardInterrupt as error:
        typer.echo("Interrupted. To go on, give the same command again.", err=True)
        raise typer.Exit(130) from error
    _show(found)


def _ranges(texts: Sequence[str]) -> dict[str, Range] | None:
    found: dict[str, Range] = {}
    for text in texts:
        name, _, bounds = text.partition("=")
        rule, slash, setting = name.strip().rpartition("/")
        try:
            low, high = (float(bound) for bound in bounds.split(":"))
        except ValueError as error:
            raise ConfigError(
                f"--range takes NAME=LOW:HIGH, such as server-lr=0.1:10; got {text!r}."
            ) from error
        found[rule + slash + setting.replace("-", "_")] = low, high
    return found or None


def _show(found: Tuned) -> None:
    from anarchic.study.groups import Asked, Group
    from anarchic.study.publish import GroupRow, entry

    metric = found.tuning.metric
    judged, tested = Asked(f"val_{metric}"), Asked(metric)
    rows, records = [], []
    for rule, final in zip(found.tuning.rules, found.final.findings(), strict=True):
        rates = ", ".join(f"{name}={value:g}" for name, value in found.chosen(rule).items())
        cells: list[str] = []
        record: dict[str, Any] = {"rule": rule, "chosen": dict(found.chosen(rule))}
        both = {"validation": (judged, found.best[rule]), "test": (tested, final)}
        for name, (asked, outcome) in both.items():
            group = Group(rule, outcome.results)
            values = [v for run in group.finished if (v := asked.value(run, "final")) is not None]
            record[name] = values
            cells.append(entry(GroupRow(group, {"final": values}), "final", "sd"))
        rows.append((rule, rates, *cells))
        records.append({**record, "at_edge": list(found.at_edge(rule))})
    print_table(
        ("rule", "chosen", f"validation {metric}", f"test {metric}, new seeds"), rows, names=2
    )
    for rule in found.tuning.rules:
        if names := found.at_edge(rule):
            typer.echo(
                f"{rule}: {' and '.join(names)} at the edge of the range: try a wider one.",
                err=True,
            )
    scripts.found(out=found.path, metric=metric, rules=records)
    place = shlex.quote(str(found.path / "final"))
    typer.echo(f"Written to {found.path}. To compare: anarchic compare {place}")
