"""``anarchic theory``: what the theorems say of given numbers, or of a recorded run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.help import examples, option
from anarchic.cli.records import Given, Option, takes
from anarchic.theory.numbers import KnownNumbers
from anarchic.theory.report import POINTS, REPEATS

EPILOG = examples(
    "anarchic theory --rounds 10000 --workers 100 --m 10 --local-steps 5 --staleness 4",
    "anarchic theory --smoothness 20 --sigma-global 0 --server-lr 7 --local-lr 0.001",
    "anarchic simulate --rule afa-cs --labels-per-worker 2 --out runs/cs",
    "anarchic theory --run runs/cs",
    "anarchic theory --run runs/cs --local-lr 0.001   # another learning rate",
    "anarchic theory --run runs/cs --json             # for programs",
)
_RUN = "Run"
_PROBLEM = "Problem (with --run: estimated where not given)"
_RATES = "Learning rates (with --run: its own where not given)"
_PARTICIPATION = "Participation (with --run: counted, not given)"

OPTIONS: Mapping[str, Option] = {
    "smoothness": Option(
        _PROBLEM,
        "L of Assumption 1: || grad f_i(x) - grad f_i(y) || <= L || x - y || for every worker i.",
        stands_for="1",
    ),
    "sigma_local": Option(
        _PROBLEM,
        "sigma_L of Assumption 3: E || stochastic gradient - grad f_i(x) ||^2 <= sigma_L^2 for "
        "every worker i.",
        stands_for="1",
    ),
    "sigma_global": Option(
        _PROBLEM,
        "sigma_G of Assumption 3: || grad f_i(x) - grad f(x) ||^2 <= sigma_G^2; 0 if all workers "
        "have the same distribution of data.",
        stands_for="1",
    ),
    "gap": Option(
        _PROBLEM,
        "f_0 - f_* (Theorem 4: f(x_0) - f(x_T)): how far the mean training loss can fall from the "
        "first model that the theorem is about.",
        stands_for="1; with --run f_0, since a loss is at least 0",
    ),
    "server_lr": Option(
        _RATES,
        "eta: server learning rate, x_(t+1) = x_t - eta eta_L G_t.",
        stands_for="the corollaries' sqrt(m K), for Theorem 4 sqrt(M K)",
    ),
    "local_lr": Option(
        _RATES,
        "eta_L: local learning rate of every local step.",
        stands_for="the corollaries' 1/sqrt(T)",
    ),
    "rounds": Option(_PARTICIPATION, "T: rounds, that is server steps.", stands_for="10,000"),
    "workers": Option(_PARTICIPATION, "M: number of workers.", stands_for="10"),
    "m": Option(_PARTICIPATION, "m: updates per server step.", stands_for="5"),
    "local_steps": Option(_PARTICIPATION, "K: local steps of every visit.", stands_for="5"),
    "staleness": Option(
        _PARTICIPATION,
        "tau of Theorems 2 and 3: largest staleness of an update, in rounds.",
        stands_for="0",
    ),
    "row_age": Option(
        _PARTICIPATION,
        "tau of Theorem 4: largest age of a row in the memory of AFA-CS, in rounds.",
        stands_for="workers take turns: --staleness + ceil(M/m) - 1",
    ),
    "fresh": Option(
        _PARTICIPATION,
        "m' of Theorem 4: rows without delay, the fewest of all rounds.",
        stands_for="m if --staleness is 0, else 0",
    ),
}


@takes(OPTIONS, KnownNumbers)
def theory(
    given: Given,
    run: Annotated[
        Path | None,
        option(
            "Directory of a recorded run. Its constants are estimated (on the CPU), its delays and "
            "local steps are counted. AFA-CS is run again until every worker has reported, for f_0 "
            "of Theorem 4, unless --gap is given.",
            "the given numbers",
            metavar="DIR",
            rich_help_panel=_RUN,
        ),
    ] = None,
    points: Annotated[
        int,
        option(
            "Number of models, evenly spaced from the run's first to its last, at which L, sigma_L "
            "and sigma_G are estimated; the largest values count.",
            POINTS,
            rich_help_panel=_RUN,
        ),
    ] = POINTS,
    repeats: Annotated[
        int,
        option(
            "Batches per worker and model, for sigma_L and sigma_G.",
            REPEATS,
            rich_help_panel=_RUN,
        ),
    ] = REPEATS,
    as_json: Annotated[bool, option("Print everything as JSON.", flag="--json")] = False,
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
    from anarchic.cli.verdicts import print_verdicts
    from anarchic.theory import as_dict, judge

    found = judge(KnownNumbers(**given), run=run, points=points, repeats=repeats)
    if as_json:
        typer.echo(json.dumps(as_dict(found), indent=2))
    else:
        print_verdicts(found, run)
