"""``anarchic theory``: what the theorems say of given numbers, or of a recorded run."""

from __future__ import annotations

from json import dumps
from math import inf
from pathlib import Path

import typer

from anarchic.cli.options import Given, examples, table, takes
from anarchic.cli.show import percent, print_facts, print_table
from anarchic.theory import Calculation, Condition, RateLimits, Report, Verdict, as_dict, judge
from anarchic.theory.numbers import KnownNumbers
from anarchic.theory.report import LEFT_OUT, POINTS, REPEATS

EPILOG = examples(
    "anarchic theory --rounds 10000 --workers 100 --m 10 --local-steps 5 --staleness 4",
    "anarchic theory --smoothness 20 --sigma-global 0 --server-lr 7 --local-lr 0.001",
    "anarchic simulate --rule afa-cs --labels-per-worker 2 --out runs/cs",
    "anarchic theory --run runs/cs",
    "anarchic theory --run runs/cs --local-lr 0.001   # another learning rate",
    "anarchic theory --run runs/cs --json             # for programs",
)
OPTIONS = table("""
Problem (with --run: estimated where not given)
  smoothness: L of Assumption 1: || grad f_i(x) - grad f_i(y) || <= L || x - y || for every worker
    i. (default: 1)
  sigma_local: sigma_L of Assumption 3: E || stochastic gradient - grad f_i(x) ||^2 <= sigma_L^2 for
    every worker i. (default: 1)
  sigma_global: sigma_G of Assumption 3: || grad f_i(x) - grad f(x) ||^2 <= sigma_G^2; 0 if all
    workers have the same distribution of data. (default: 1)
  gap: f_0 - f_* (Theorem 4: f(x_0) - f(x_T)): how far the mean training loss can fall from the
    first model that the theorem is about. (default: 1; with --run f_0, since a loss is at least 0)
Learning rates (with --run: its own where not given)
  server_lr: eta: server learning rate, x_(t+1) = x_t - eta eta_L G_t.
    (default: the corollaries' sqrt(m K), for Theorem 4 sqrt(M K))
  local_lr: eta_L: local learning rate of every local step. (default: the corollaries' 1/sqrt(T))
Participation (with --run: counted, not given)
  rounds: T: rounds, that is server steps. (default: 10,000)
  workers: M: number of workers. (default: 10)
  m: m: updates per server step; Theorem 3 is about m up to M. (default: 5)
  local_steps: K: local steps of every visit. (default: 5)
  staleness: tau of Theorems 2 and 3: largest staleness of an update, in rounds. (default: 0)
  row_age: tau of Theorem 4: largest age of a row in the memory of AFA-CS, in rounds.
    (default: workers take turns: --staleness + ceil(M/m) - 1)
  fresh: m' of Theorem 4: rows without delay, the fewest of all rounds, at most m.
    (default: m if --staleness is 0, else 0)
Run
  run DIR|STORE: Directory of a recorded run. Its constants are estimated (on the CPU), its delays
    and local steps are counted. AFA-CS is run again until every worker has reported, for f_0 of
    Theorem 4, unless --gap is given. Or a server's store: its delays, local steps and rates are
    counted, its constants are those given. (default: the given numbers)
  points: Number of models, evenly spaced from the run's first to its last, at which L, sigma_L and
    sigma_G are estimated; the largest values count.
  repeats: Batches per worker and model, for sigma_L and sigma_G.
Options
  json: Print everything as JSON.
""")
FEW = 12  # values of K that are listed one by one
LONG = 1e15  # rounds; larger numbers are shown with three digits


@takes(OPTIONS, KnownNumbers)
def theory(
    given: Given,
    run: str | None = None,
    points: int = POINTS,
    repeats: int = REPEATS,
    json: bool = False,
) -> None:
    """Show what the paper's theorems promise, and for which learning rates.

    Theorem 2 is about AFA-CD with any arrivals, Theorem 3 about AFA-CD with equally likely workers,
    Theorem 4 about AFA-CS.
    If three conditions on the learning rates hold, the mean of || grad f(x_t) ||^2 is at most

    4 (f_0 - f_*) / (eta eta_L T) + c (alpha_L sigma_L^2 + alpha_G sigma_G^2),

    where c is 4, and 1 in Theorem 4.
    A condition marked "corrected" is the one that the proof needs; the paper prints another.
    The output says so where the two disagree.
    """
    found = judge(KnownNumbers(**given), run=run, points=points, repeats=repeats)
    if json:
        typer.echo(dumps(as_dict(found), indent=2))
    else:
        print_verdicts(found, run)


def print_verdicts(found: Calculation | Report, run: str | Path | None) -> None:
    """The numbers, the theorems, and the warnings about a run."""
    facts = _numbers(found)
    if isinstance(found, Report):
        facts = [("run", f"{found.rule} in {_place(run)}"), *facts, *_measured(found)]
    print_facts(facts, "Numbers")
    for verdict in found.verdicts:
        _print_verdict(verdict)
    for warning in found.warnings:
        typer.echo(f"Warning: {warning}")


def _place(run: str | Path | None) -> str:
    """Where a run is; an address may hold a password, so of it only the name is shown."""
    if "://" not in str(run):
        return str(run)
    from anarchic.server.history import store_name

    return store_name(run)


def _numbers(found: Calculation | Report) -> list[tuple[str, str]]:
    problem, arrivals, memory = found.problem, found.arrivals, found.memory
    row_age = "unbounded" if memory.row_age == inf else f"{memory.row_age:g}"
    return [
        ("L", f"{problem.smoothness:.4g}"),
        ("sigma_L, sigma_G", f"{problem.sigma_local:.4g}, {problem.sigma_global:.4g}"),
        ("f_0 - f_*", f"{problem.gap:.4g}"),
        ("M, m, T", f"{arrivals.workers:,}, {arrivals.m:,}, {arrivals.rounds:,}"),
        ("K", f"{arrivals.mean_steps:.3g} on average, {arrivals.steps_max} at most"),
        ("tau", f"{arrivals.staleness} of updates, {row_age} of rows in AFA-CS's memory"),
        ("m'", f"{memory.fresh} of its rows without delay"),
    ]


def _measured(report: Report) -> list[tuple[str, str]]:
    balance, steps, squared = report.balance, report.local_steps, report.squared_gradients
    arrivals = (
        f"{percent(balance.share_min)} to {percent(balance.share_max)} of updates per worker, "
        f"{balance.silent} silent: {balance.words}"
    )
    if len(steps.counts) > FEW:
        least, low, half, high, most = steps.quartiles
        spread = f"least {least}, quartiles {low}, {half}, {high}, largest {most}"
    else:
        updates = sum(steps.counts.values())
        shares = (f"{K} in {percent(count / updates)}" for K, count in steps.counts.items())
        spread = ", ".join(shares) + " of updates"
    which = "first to last model" if len(squared) > 1 else "first model"
    gradients = " -> ".join(f"{value:.2g}" for value in squared) + f", {which}, estimated"
    return [
        ("distribution of K", spread),
        ("arrivals", arrivals),
        ("squared gradient", gradients if squared else "not estimated"),
    ]


def _print_verdict(verdict: Verdict) -> None:
    held = sum(condition.holds for condition in verdict.conditions)
    typer.echo(f"\nTheorem {verdict.theorem}: {verdict.about}. {held} of 3 conditions hold.")
    header = "condition", "", "value", "limit", "value / limit"
    print_table(header, [_row(condition) for condition in verdict.conditions], names=2)
    for condition in verdict.conditions:
        if condition.printed and condition.disputed:
            typer.echo(
                f"As the paper prints it, {condition.printed.formula}, that condition holds (value "
                f"{condition.printed.value:.3g}); the proof needs the corrected one."
            )
    print_facts(_facts(verdict))


def _row(condition: Condition) -> tuple[str, ...]:
    formula = condition.formula + (" (corrected)" if condition.printed else "")
    value, limit = condition.value, condition.limit
    numbers = (f"{n:.3g}" for n in (value, limit, value / limit))
    return formula, "holds" if condition.holds else "BROKEN", *numbers


def _facts(verdict: Verdict) -> list[tuple[str, str]]:
    bound, rates, best = verdict.bound, verdict.rates, verdict.corollary
    parts = f"start {bound.start:.3g} + noise {bound.noise:.3g} + heterogeneity "
    parts += f"{bound.heterogeneity:.3g}"
    if bound.floor:
        parts += f", of which {bound.floor:.3g} never vanishes"
    terms = ", ".join(f"{name} {value:.3g}" for name, value in verdict.rate.items())
    return [
        ("at", f"eta = {rates.server_lr:.4g}, eta_L = {rates.local_lr:.4g}"),
        (_named("bound", verdict), f"{bound.total:.4g} = {parts}"),
        *_corrected(verdict),
        (
            "alpha_L, alpha_G",
            f"{sum(bound.alpha_local.values()):.3g}, {sum(bound.alpha_global.values()):.3g}",
        ),
        ("rates allowed", _allowed(verdict.limits)),
        (
            "corollary",
            f"eta = {best.server_lr:.4g}, eta_L = {best.local_lr:.4g}; allowed "
            f"{_from(verdict.rounds_needed)}",
        ),
        (
            "its rate, O( )",
            f"{terms}; speed-up above delay and drift {_from(verdict.rounds_until_speed_up)}",
        ),
    ]


def _named(name: str, verdict: Verdict) -> str:
    return name if verdict.holds else f"{name} (void)"


def _corrected(verdict: Verdict) -> list[tuple[str, str]]:
    """The bound with the term that its theorem leaves out, where there is one."""
    bound = verdict.bound
    if not bound.left_out:
        return []
    shown = f"{bound.corrected:.4g}, with {bound.left_out:.3g} for {LEFT_OUT[bound.theorem]}"
    return [(_named("corrected bound", verdict), shown)]


def _from(rounds: float) -> str:
    if rounds == inf:
        return "never"
    return f"from T = {rounds:.3g} on" if rounds > LONG else f"from T = {rounds:,.0f} on"


def _allowed(limits: RateLimits) -> str:
    if not limits.local_lr > 0:
        return "none: the delay is unbounded"
    such = limits.rates()
    return (
        f"eta_L < {limits.local_lr:.3g} and eta * eta_L <= {limits.step:.3g}, such as eta = "
        f"{such.server_lr:.3g}, eta_L = {such.local_lr:.3g}"
    )
