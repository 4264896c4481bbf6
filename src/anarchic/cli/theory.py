"""``anarchic theory``: what the theorems say of given numbers, or of a recorded run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from anarchic.cli.help import examples, option
from anarchic.cli.verdicts import print_calculation, print_report
from anarchic.errors import ConfigError

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
    print_calculation(found)


def _of_run(run: Path, given: dict[str, float], points: int, repeats: int, as_json: bool) -> None:
    from anarchic.theory import judge_run, plain

    report = judge_run(run, known=given, points=points, repeats=repeats)
    if as_json:
        typer.echo(json.dumps(plain(report), indent=2))
        return
    print_report(run, report)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
