"""``anarchic theory``: what the theorems say of given numbers, or of a recorded run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anarchic.cli.help import examples, option
from anarchic.cli.show import percent, print_facts, print_table
from anarchic.errors import ConfigError

if TYPE_CHECKING:
    from anarchic.theory import Arrivals, Limits, Memory, Problem, Report, Steps, Verdict

EPILOG = examples(
    "anarchic theory --rounds 10000 --workers 100 --m 10 --local-steps 5 --staleness 4",
    "anarchic theory --smoothness 20 --sigma-global 0 --server-lr 7 --local-lr 0.001",
    "anarchic simulate --rule afa-cs --labels-per-worker 2 --out runs/cs",
    "anarchic theory --run runs/cs",
    "anarchic theory --run runs/cs --local-lr 0.001   # what if",
    "anarchic theory --run runs/cs --json             # for machines",
)
_RUN = "Run"
_PROBLEM = "Problem (with --run: estimated where not given)"
_RATES = "Learning rates (with --run: its own where not given)"
_TURNOUT = "Participation (with --run: counted, not given)"
POINTS, REPEATS = 3, 16
FEW = 12  # values of K that are told one by one
Number = float | None
Count = int | None


def _option(symbol: str, help: str, panel: str, default: str) -> Any:
    return option(f"{symbol}: {help}.", default, rich_help_panel=panel)


def theory(
    run: Annotated[
        Path | None,
        option(
            "Directory of a recorded run: its constants are estimated, on the CPU wherever it ran, "
            "its delays and local steps counted. AFA-CS is run again until every worker has "
            "reported, for f_0 of Theorem 4, unless --gap is given.",
            "the numbers below",
            metavar="DIR",
            rich_help_panel=_RUN,
        ),
    ] = None,
    points: Annotated[
        int,
        option(
            "Models, evenly spaced from the run's first to its last, at which L, sigma_L and "
            "sigma_G are estimated; the largest count.",
            POINTS,
            rich_help_panel=_RUN,
        ),
    ] = POINTS,
    repeats: Annotated[
        int,
        option(
            "Batches that every worker draws at each, for sigma_L and sigma_G.",
            REPEATS,
            rich_help_panel=_RUN,
        ),
    ] = REPEATS,
    smoothness: Annotated[
        Number,
        _option(
            "L of Assumption 1",
            "|| grad f_i(x) - grad f_i(y) || <= L || x - y || for every worker i",
            _PROBLEM,
            "1",
        ),
    ] = None,
    sigma_local: Annotated[
        Number,
        _option(
            "sigma_L of Assumption 3",
            "E || stochastic gradient - grad f_i(x) ||^2 <= sigma_L^2 for every worker i",
            _PROBLEM,
            "1",
        ),
    ] = None,
    sigma_global: Annotated[
        Number,
        _option(
            "sigma_G of Assumption 3",
            "|| grad f_i(x) - grad f(x) ||^2 <= sigma_G^2; 0 where the workers' data are alike",
            _PROBLEM,
            "1",
        ),
    ] = None,
    gap: Annotated[
        Number,
        _option(
            "f_0 - f_* (Theorem 4: f(x_0) - f(x_T))",
            "how far the mean training loss can fall from where the theorem begins",
            _PROBLEM,
            "1; with --run f_0, since a loss is at least 0",
        ),
    ] = None,
    server_lr: Annotated[
        Number,
        _option(
            "eta",
            "server learning rate, x_(t+1) = x_t - eta eta_L G_t",
            _RATES,
            "the corollaries' sqrt(m K), for Theorem 4 sqrt(M K)",
        ),
    ] = None,
    local_lr: Annotated[
        Number,
        _option(
            "eta_L", "local learning rate, of every step", _RATES, "the corollaries' 1/sqrt(T)"
        ),
    ] = None,
    rounds: Annotated[
        Count, _option("T", "rounds, that is steps of the server", _TURNOUT, "10,000")
    ] = None,
    workers: Annotated[Count, _option("M", "number of workers", _TURNOUT, "10")] = None,
    m: Annotated[Count, _option("m", "updates that the server waits for", _TURNOUT, "5")] = None,
    local_steps: Annotated[
        Count, _option("K", "local steps, K_(t,i) of every visit", _TURNOUT, "5")
    ] = None,
    staleness: Annotated[
        Count,
        _option(
            "tau of Theorems 2 and 3",
            "largest staleness of an update, in rounds",
            _TURNOUT,
            "0",
        ),
    ] = None,
    row_age: Annotated[
        Count,
        _option(
            "tau of Theorem 4",
            "largest age of a row in the memory of AFA-CS, in rounds",
            _TURNOUT,
            "workers take turns: --staleness + ceil(M/m) - 1",
        ),
    ] = None,
    fresh: Annotated[
        Count,
        _option(
            "m' of Theorem 4",
            "rows without delay, the fewest of all rounds",
            _TURNOUT,
            "m where --staleness is 0, else 0",
        ),
    ] = None,
    as_json: Annotated[
        bool, option("Print everything as JSON, for machines.", flag="--json")
    ] = False,
) -> None:
    """Say what the paper's theorems promise, and under which learning rates.

    Theorem 2 is about AFA-CD with any arrivals, 3 with equally likely ones; Theorem 4 about AFA-CS.
    If three conditions on the learning rates hold, the mean of || grad f(x_t) ||^2 is at most

    4 (f_0 - f_*) / (eta eta_L T) + c (alpha_L sigma_L^2 + alpha_G sigma_G^2),

    where c is 4, and 1 in Theorem 4.
    A condition marked "corrected" is the one that the proof needs; the paper prints another.
    Where the two disagree, that is said.
    """
    known = {
        "smoothness": smoothness,
        "sigma_local": sigma_local,
        "sigma_global": sigma_global,
        "gap": gap,
        "server_lr": server_lr,
        "local_lr": local_lr,
    }
    turnout = {
        "rounds": rounds,
        "workers": workers,
        "m": m,
        "local_steps": local_steps,
        "staleness": staleness,
        "row_age": row_age,
        "fresh": fresh,
    }
    given, counted = _given(known), _given(turnout)
    if run is None:
        _calculate(given, counted, as_json)
        return
    if counted:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in counted)
        raise ConfigError(f"The run has its own timetable: leave out {flags}, or leave out --run.")
    _of_run(run, given, points, repeats, as_json)


def _calculate(given: dict[str, float], counted: dict[str, int], as_json: bool) -> None:
    from anarchic.theory import calculate, plain

    found = calculate(given, counted)
    if as_json:
        typer.echo(json.dumps(plain(found), indent=2))
        return
    print_facts(_problem(found.problem) + _turnout(found.arrivals, found.memory), "Numbers")
    for verdict in found.verdicts:
        _print_verdict(verdict)


def _of_run(run: Path, given: dict[str, float], points: int, repeats: int, as_json: bool) -> None:
    from anarchic.theory import judge_run, plain

    report = judge_run(run, known=given, points=points, repeats=repeats)
    if as_json:
        typer.echo(json.dumps(plain(report), indent=2))
        return
    print_facts(_run_facts(run, report), "Numbers")
    for verdict in report.verdicts:
        _print_verdict(verdict)
    for warning in report.warnings:
        typer.echo(f"Warning: {warning}")


def _run_facts(run: Path, report: Report) -> list[tuple[str, str]]:
    balance = report.balance
    measured = " -> ".join(f"{value:.3g}" for value in report.squared_gradients)
    return [
        ("run", f"{report.rule} in {run}"),
        *_problem(report.problem),
        *_turnout(report.arrivals, report.memory),
        ("distribution of K", _distribution(report.local_steps)),
        (
            "arrivals",
            f"{percent(balance.share_min)} to {percent(balance.share_max)} of updates a worker, "
            f"{balance.silent} silent: {'biased' if balance.biased else 'as if equally likely'}",
        ),
        ("squared gradient", f"{measured}, first to last model" if measured else "not estimated"),
    ]


def _problem(problem: Problem) -> list[tuple[str, str]]:
    return [
        ("L", f"{problem.smoothness:.4g}"),
        ("sigma_L, sigma_G", f"{problem.sigma_local:.4g}, {problem.sigma_global:.4g}"),
        ("f_0 - f_*", f"{problem.gap:.4g}"),
    ]


def _turnout(arrivals: Arrivals, memory: Memory) -> list[tuple[str, str]]:
    K = f"{arrivals.mean_steps:.3g} on average, {arrivals.steps_max} at most"
    return [
        ("M, m, T", f"{arrivals.workers:,}, {arrivals.m:,}, {arrivals.rounds:,}"),
        ("K", K),
        ("tau", f"{arrivals.staleness} of updates, {memory.row_age:g} of rows in memory"),
        ("m'", f"{memory.fresh} rows without delay"),
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
    rows = [
        (
            condition.formula + (" (corrected)" if condition.printed else ""),
            "holds" if condition.holds else "BROKEN",
            *(f"{n:.3g}" for n in (condition.value, condition.limit, 1 - condition.margin)),
        )
        for condition in verdict.conditions
    ]
    print_table(header, rows, names=2)
    for condition in verdict.conditions:
        if condition.printed and condition.disputed:
            typer.echo(
                f"As the paper prints it, {condition.printed.formula}, that condition holds (value "
                f"{condition.printed.value:.3g}); the proof needs the corrected one."
            )
    print_facts(_facts(verdict))


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
            f"eta = {best.server_lr:.4g}, eta_L = {best.local_lr:.4g}; allowed from T = "
            f"{verdict.rounds_needed:,.0f} on",
        ),
        (
            "its rate, O( )",
            f"{terms}; speed-up first from T = {verdict.rounds_until_speed_up:,.0f}",
        ),
    ]


def _allowed(limits: Limits) -> str:
    if not limits.local_lr > 0:
        return "none: the delay is unbounded"
    such = limits.rates()
    return (
        f"eta_L < {limits.local_lr:.3g} and eta * eta_L <= {limits.step:.3g}, such as eta = "
        f"{such.server_lr:.3g}, eta_L = {such.local_lr:.3g}"
    )


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
