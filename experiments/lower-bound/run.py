"""Theorem 1: the error ball of size sigma_G^2 that a silent worker leaves, and the way out."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from anarchic import AfaCd, AfaCs, Experiment, LocalWork
from anarchic.participation.timetable import Timetable, running_numbers
from anarchic.report.figure import COLOURS, new_figure, style
from anarchic.sim.engine import Engine
from anarchic.study import Cell, Claim, Findings, Job, Outcome, Picture, Study, beside, main
from anarchic.study.draw import legend_below
from anarchic.study.tables import markdown
from anarchic.theory import Rates, lower_bound
from anarchic.train.quadratic import QuadraticTask

uniform = beside(__file__, "uniform")
SIGMAS = (0.1, 0.3, 1.0, 3.0, 10.0)  # sigma_G
SHARES = (1.0, 0.9, 0.7, 0.5)  # of the first worker in the arrivals
LATE = "1, then 0.9"  # the second worker is silent for half of the run
RULES = {"AFA-CD": lambda: AfaCd(M, ETA), "AFA-CS": lambda: AfaCs(M, ETA, population=2)}
M, K = 2, 3  # updates per round, local steps
ETA, ETA_L = 2.0, 0.1  # server and local learning rate
START = 2.0  # x_0
ROUNDS, SMOKE_ROUNDS = 2000, 30
SEEDS = 3
BURN_IN = 100  # rounds after which the start is forgotten to rounding
SHOWN = 1.0  # the sigma_G of the first picture
ROUNDING, GONE = -6, -12  # powers of ten: relatively no distance, and no squared gradient
CLOSE = 0.05  # relatively, to a closed form
NOT_COVERED = (
    "All conditions of the theorem hold in this run. No term of the bound covers the variance of "
    "drawing m of M workers: see *The bound of Theorem 3* on the page of the experiment."
)
POINTS = 100  # of a curve, evenly on a logarithmic axis


def timetable(share: float | str, rounds: int, seed: int) -> Timetable:
    """Arrivals with a share, or with a second worker that is silent for half of the run."""
    if share != LATE:
        return lower_bound.arrivals_of_one(rounds, share=share, m=M, local_steps=K, seed=seed)
    table = lower_bound.arrivals_of_one(rounds, share=0.9, m=M, local_steps=K, seed=seed)
    worker = np.where(table.version < rounds // 2, 0, table.worker)
    return replace(table, worker=worker, visit=running_numbers(worker))


def squared_gradients(rule, sigma: float, table: Timetable):
    """||grad f(x_t)||^2 for t = 0 .. T of a run; shape (T + 1,)."""
    task = QuadraticTask(lower_bound.worst_case(sigma), np.array([START]))
    engine = Engine(Experiment(task, rule, table, LocalWork(lr=ETA_L)))
    seen = [START]
    while engine.version < table.rounds:
        engine.next_version()
        seen.append(float(engine.state.params[0]))
    return lower_bound.squared_gradient(np.array(seen))


def measure(job: Job) -> dict:
    asked = job.cell.settings
    rounds = SMOKE_ROUNDS if job.smoke else ROUNDS
    rule, sigma, share = RULES[asked["rule"]](), asked["sigma_G"], asked["share"]
    seen = squared_gradients(rule, sigma, timetable(share, rounds, job.seed))
    first = min(BURN_IN, rounds // 4) + (rounds // 2 if share == LATE else 0)
    ball, expected = seen[first:].mean(), closed_form(asked["rule"], sigma, share)
    return {
        "ball": ball,
        "last": seen[-1],
        "closed_form": expected,
        "off": None if expected is None else abs(ball / expected - 1),
        "rounds": rounds,
        "curve": by_round(seen),
    }


def by_round(seen) -> dict[str, list[float]]:
    """Rounds evenly on a logarithmic axis, with the mean since the round before."""
    at = np.unique(np.geomspace(1, len(seen) - 1, POINTS).round().astype(int))
    sums = np.add.reduceat(seen[1:], [0, *at[:-1]])
    return {"round": at.tolist(), "squared_gradient": (sums / np.diff([0, *at])).tolist()}


def closed_form(rule: str, sigma: float, share: float | str) -> float | None:
    """What the ball must be; None where that is 0, or is not known."""
    if share == LATE:
        share = 0.9
    if rule == "AFA-CS":
        return lower_bound.error_ball(sigma) if share == 1.0 else None
    step = lower_bound.pull(Rates(server_lr=ETA, local_lr=ETA_L), K)
    return lower_bound.error_ball(sigma, share=share, step=step, m=M)


def cell(rule: str, sigma: float, share: float | str) -> Cell:
    both, silent = rule == "AFA-CS" and share != 1.0, share == 1.0
    run = {"m": M, "K": K, "eta": ETA, "eta_L": ETA_L, "start": START, "rounds": ROUNDS}
    return Cell(
        name=f"{rule.lower()}-sigma{sigma:g}-share{share if share != LATE else 'late'}",
        task="theorem-1",
        settings={"rule": rule, "sigma_G": sigma, "share": share, "burn_in": BURN_IN, **run},
        columns={"sigma_G": sigma, "share": share, "rule": rule},
        paper=sigma**2 if silent else 0.0 if both else None,
        value="ball",
        measure=measure,
    )


def furthest(found: Findings, *, number: str) -> float:
    """The largest value of a number over cells and seeds, as a power of ten."""
    values = [value for outcome in found for value in outcome.values(number)]
    return float(np.log10(max(max(values), 1e-300)))


def off(found: Findings) -> float:
    """The largest relative distance of a cell's mean over the seeds from the closed form."""
    return max(abs(outcome.ours / outcome.mean("closed_form") - 1) for outcome in found)


def draw_rounds(found: Findings):
    """One panel per rule: squared gradient by round, with the closed forms as thin lines."""
    shown = found.where(sigma_G=SHOWN)
    if not shown.complete:
        return None
    figure = new_figure(10.4, 4.0)
    for index, rule in enumerate(RULES):
        axes = figure.add_subplot(1, 2, index + 1)
        for colour, share in zip(COLOURS, (*SHARES, LATE), strict=False):
            width = 4.5 if share == 1.0 else 1.5  # the first half of LATE lies on it
            outcome = shown.one(rule=rule, share=share)
            curve = outcome.results[0].curve
            heights = np.maximum(curve["squared_gradient"], 1e-36)
            axes.loglog(curve["round"], heights, color=colour, label=str(share), linewidth=width)
            if rule == "AFA-CD" and share != LATE:
                axes.axhline(
                    outcome.mean("closed_form"), color=colour, linewidth=0.8, linestyle=":"
                )
        style(
            axes,
            title=f"{rule}, sigma_G = {SHOWN:g}",
            x="round",
            y="||grad f||², mean by point",
        )
    legend_below(figure, title="share of the updates that are the first worker's")
    return figure


def draw_ball(found: Findings):
    """The measured ball by sigma_G^2, one line per share."""
    shown = found.where(rule="AFA-CD", share=SHARES)
    if not shown.complete:
        return None
    figure = new_figure(6.0, 4.2)
    axes = figure.add_subplot()
    squares = np.square(SIGMAS)
    for colour, share in zip(COLOURS, SHARES, strict=False):
        outcomes = [shown.one(sigma_G=sigma, share=share) for sigma in SIGMAS]
        closed = [outcome.mean("closed_form") for outcome in outcomes]
        axes.loglog(squares, closed, color=colour, linewidth=1)
        axes.loglog(
            squares, [outcome.ours for outcome in outcomes], "o", color=colour, label=_name(share)
        )
    style(axes, title="The error ball of AFA-CD", x="sigma_G²", y="||grad f||² in the long run")
    axes.legend(frameon=False, fontsize=9)
    return figure


def _name(share: float) -> str:
    return "share 1 (the second worker is silent)" if share == 1.0 else f"share {share:g}"


BY_SHARE = """
## By share

The part of sigma_G^2 that AFA-CD and AFA-CS keep as squared gradient at sigma_G = 1, the closed
form for AFA-CD, the largest relative difference of AFA-CD's part over sigma_G, and the largest
squared gradient of AFA-CS after the last round, over sigma_G and the seeds.
""".strip()


def more_tables(found: Findings) -> str:
    """What is left of the ball, by share."""
    found = found.where(task="theorem-1")
    if not found.complete:
        return ""
    rows = []
    for share in (*SHARES, LATE):
        alone, memory = (found.where(rule=rule, share=share) for rule in RULES)
        shown, closed = alone.one(sigma_G=SHOWN), alone.one(sigma_G=SHOWN).mean("closed_form")
        numbers = (kept(shown), closed / SHOWN**2, kept(memory.one(sigma_G=SHOWN)))
        ends = (apart(alone), 10 ** furthest(memory, number="last"))
        rows.append([str(share), *(f"{x:.4f}" for x in numbers), *(f"{x:.0e}" for x in ends)])
    header = ("share", "AFA-CD", "closed form", "AFA-CS", "difference", "last of AFA-CS")
    return f"{BY_SHARE}\n\n{markdown(header, rows)}"


def apart(alone: Findings) -> float:
    """The largest relative difference of what is kept to that at the shown sigma_G."""
    return max(abs(kept(x) / kept(same_share(alone, x)) - 1) for x in alone)


def kept(outcome: Outcome) -> float:
    """The part of sigma_G^2 that is left."""
    return outcome.ours / outcome.get("sigma_G") ** 2


def same_share(found: Findings, outcome: Outcome) -> Outcome:
    return found.one(share=outcome.get("share"), sigma_G=SHOWN)


STUDY = Study(
    folder=Path(__file__).parent,
    title="Theorem 1: the error ball, and AFA-CS leaving it",
    cells=[
        *(cell(r, sigma, share) for r in RULES for share in (*SHARES, LATE) for sigma in SIGMAS),
        uniform.cell(),
    ],
    seeds={"theorem-1": SEEDS, uniform.TASK: SEEDS},
    show={"theorem-1": ("closed_form",)},
    task_names={
        "theorem-1": "Two quadratics",
        uniform.TASK: "Two quadratics, uniform arrivals: error over the bound of Theorem 3",
    },
    tables={uniform.TASK: uniform.table},
    more_tables=more_tables,
    claims=[
        Claim(
            text="a silent worker: largest relative distance from sigma_G^2, as a power of ten",
            of={"share": 1.0},
            value=partial(furthest, number="off"),
            at_most=ROUNDING,
        ),
        Claim(
            text="shares in between: largest relative distance of AFA-CD from the closed form",
            of={"rule": "AFA-CD", "share": SHARES[1:]},
            value=off,
            at_most=CLOSE,
        ),
        Claim(
            text="both report: largest squared gradient of AFA-CS at the end, as a power of ten",
            of={"rule": "AFA-CS", "share": (*SHARES[1:], LATE)},
            value=partial(furthest, number="last"),
            at_most=GONE,
        ),
        Claim(
            text="uniform arrivals: error over the bound of Theorem 3",
            of={"task": uniform.TASK},
            value=lambda found: found.one().ours,
            at_most=1,
            reason=NOT_COVERED,
        ),
        Claim(
            text="uniform arrivals: error over the bound of Theorem 3 with the term it leaves out",
            of={"task": uniform.TASK},
            value=lambda found: found.one().mean("over_corrected"),
            at_most=1,
        ),
    ],
    facts={"Theorem 3, corrected bound over error": uniform.looseness},
    pictures=[
        Picture(
            file="rounds.png",
            caption="Squared gradient by round, one seed; dotted: the closed forms of AFA-CD",
            draw=draw_rounds,
        ),
        Picture(
            file="ball.png",
            caption="The error ball of AFA-CD by sigma_G²: measured (dots), in closed form (lines)",
            draw=draw_ball,
        ),
    ],
)

if __name__ == "__main__":
    main(STUDY)
