"""What the theorems say, for people: of numbers, and of a run."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from anarchic.cli.show import percent, print_facts, print_table

if TYPE_CHECKING:
    from anarchic.theory import (
        Arrivals,
        Balance,
        Calculation,
        Condition,
        Limits,
        Memory,
        Problem,
        Report,
        Steps,
        Verdict,
    )

FEW = 12  # values of K that are told one by one
LONG = 1e15  # rounds, from which on digits say nothing


def print_calculation(found: Calculation) -> None:
    """The theorems, for numbers that were given."""
    print_facts(_problem(found.problem) + _turnout(found.arrivals, found.memory), "Numbers")
    for verdict in found.verdicts:
        _print_verdict(verdict)


def print_report(run: Path, report: Report) -> None:
    """The theorems, for a run, and what to beware of."""
    print_facts(_run_facts(run, report), "Numbers")
    for verdict in report.verdicts:
        _print_verdict(verdict)
    for warning in report.warnings:
        typer.echo(f"Warning: {warning}")


def _run_facts(run: Path, report: Report) -> list[tuple[str, str]]:
    return [
        ("run", f"{report.rule} in {run}"),
        *_problem(report.problem),
        *_turnout(report.arrivals, report.memory),
        ("distribution of K", _distribution(report.local_steps)),
        ("arrivals", _arrivals(report.balance)),
        ("squared gradient", _measured(report.squared_gradients)),
    ]


def _arrivals(balance: Balance) -> str:
    how = "biased" if balance.biased else "even in the run, but not at any time"
    return (
        f"{percent(balance.share_min)} to {percent(balance.share_max)} of updates a worker, "
        f"{balance.silent} silent: {'as if equally likely' if balance.even else how}"
    )


def _measured(squared_gradients: tuple[float, ...]) -> str:
    if not squared_gradients:
        return "not estimated"
    which = "first to last model" if len(squared_gradients) > 1 else "first model"
    return " -> ".join(f"{value:.3g}" for value in squared_gradients) + f", {which}"


def _problem(problem: Problem) -> list[tuple[str, str]]:
    return [
        ("L", f"{problem.smoothness:.4g}"),
        ("sigma_L, sigma_G", f"{problem.sigma_local:.4g}, {problem.sigma_global:.4g}"),
        ("f_0 - f_*", f"{problem.gap:.4g}"),
    ]


def _turnout(arrivals: Arrivals, memory: Memory) -> list[tuple[str, str]]:
    K = f"{arrivals.mean_steps:.3g} on average, {arrivals.steps_max} at most"
    row_age = "unbounded" if memory.row_age == inf else f"{memory.row_age:g}"
    return [
        ("M, m, T", f"{arrivals.workers:,}, {arrivals.m:,}, {arrivals.rounds:,}"),
        ("K", K),
        ("tau", f"{arrivals.staleness} of updates, {row_age} of rows in AFA-CS's memory"),
        ("m'", f"{memory.fresh} of its rows without delay"),
    ]


def _distribution(steps: Steps) -> str:
    if len(steps.counts) > FEW:
        least, low, half, high, most = steps.quartiles
        return f"least {least}, quartiles {low}, {half}, {high}, largest {most}"
    updates = sum(steps.counts.values())
    shares = (f"{K} in {percent(count / updates)}" for K, count in steps.counts.items())
    return ", ".join(shares) + " of updates"


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
        parts += f", of which {bound.floor:.3g} stays for ever"
    if bound.left_out:
        parts += f"; plus about {bound.left_out:.3g} that the theorem leaves out"
    terms = ", ".join(f"{name} {value:.3g}" for name, value in verdict.rate.items())
    return [
        ("at", f"eta = {rates.server_lr:.4g}, eta_L = {rates.local_lr:.4g}"),
        ("bound" if verdict.holds else "bound (void)", f"{bound.total:.4g} = {parts}"),
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


def _from(rounds: float) -> str:
    if rounds == inf:
        return "never"
    return f"from T = {rounds:.3g} on" if rounds > LONG else f"from T = {rounds:,.0f} on"


def _allowed(limits: Limits) -> str:
    if not limits.local_lr > 0:
        return "none: the delay is unbounded"
    such = limits.rates()
    return (
        f"eta_L < {limits.local_lr:.3g} and eta * eta_L <= {limits.step:.3g}, such as eta = "
        f"{such.server_lr:.3g}, eta_L = {such.local_lr:.3g}"
    )
