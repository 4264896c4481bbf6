"""Theorem 1: the error ball of size sigma_G^2 that a silent worker leaves, and the way out."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from anarchic import AfaCd, AfaCs, Experiment, LocalWork
from anarchic.participation.timetable import Timetable, running_numbers
from anarchic.report.figure import COLOURS, new_figure, style
from anarchic.sim.engine import Engine
from anarchic.study import Cell, Claim, Findings, Job, Line, Picture, Study, main
from anarchic.study.draw import legend_below
from anarchic.theory import Rates, lower_bound
from anarchic.train.quadratic import QuadraticTask

SIGMAS = (0.1, 0.3, 1.0, 3.0, 10.0)  # sigma_G
SHARES = (1.0, 0.9, 0.7, 0.5)  # of the first worker in the arrivals
LATE = "1, then 0.9"  # the second worker is silent for half of the run
RULES = {"AFA-CD": lambda: AfaCd(M, ETA), "AFA-CS": lambda: AfaCs(M, ETA, population=2)}
M, K = 2, 3  # updates a round, local steps
ETA, ETA_L = 2.0, 0.1  # server and local learning rate
START = 2.0  # x_0
ROUNDS, SMOKE_ROUNDS = 2000, 30
SEEDS = 3
BURN_IN = 100  # rounds after which the start is forgotten to rounding
SHOWN = 1.0  # the sigma_G of the first picture
ROUNDING, GONE = -6, -12  # powers of ten: relatively no distance, and no squared gradient
CLOSE = 0.05  # relatively, to a closed form
POINTS = 100  # of a curve, evenly on a logarithmic axis

ABOUT = """
Two workers have f_1(x) = (x + G)^2 and f_2(x) = (x - G)^2, so that f(x) = x^2 + G^2 and
sigma_G = 2 G. Theorem 1 lets only the first report. Whatever the server does then, it learns the
optimum of f_1, where the squared gradient of f is sigma_G^2: no choice of learning rates, local
steps or rounds makes the error smaller. Here this is run, with exact gradients (sigma_L = 0), K = 3
local steps, m = 2 updates a round, eta = 2 and eta_L = 0.1, for 2,000 rounds from x = 2, over two
powers of ten in sigma_G.

*share* is the probability that an update is the first worker's. At 1 the second worker is silent:
the construction of the theorem. Between 1/2 and 1 AFA-CD keeps a part of the ball; its closed form,
beyond the paper, is (2 share - 1)^2 sigma_G^2 for the bias, and for drawing workers at random
s / (2 - s) * 4 share (1 - share) sigma_G^2 / m, which vanishes with the step s. With
*1, then 0.9* the second worker is silent for the first half of the run.

**ours** is the mean squared gradient of f over all rounds after the hundredth (for *1, then 0.9*
over the second half, from a hundred rounds after the second worker began to report). The paper's
value is sigma_G^2 where the second worker is silent, whatever the rule, and 0 for AFA-CS where both
report.
"""


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
    values = [value for line in found for value in line.values(number)]
    return float(np.log10(max(max(values), 1e-300)))


def off(found: Findings) -> float:
    """The largest relative distance of a cell's mean over the seeds from the closed form."""
    return max(abs(line.ours / line.mean("closed_form") - 1) for line in found)


def draw_rounds(found: Findings):
    """One panel a rule: squared gradient by round, with the closed forms as thin lines."""
    shown = found.where(sigma_G=SHOWN)
    if not shown.complete:
        return None
    figure = new_figure(10.4, 4.0)
    for index, rule in enumerate(RULES):
        axes = figure.add_subplot(1, 2, index + 1)
        for colour, share in zip(COLOURS, (*SHARES, LATE), strict=False):
            width = 4.5 if share == 1.0 else 1.5  # the first half of LATE lies on it
            line = shown.one(rule=rule, share=share)
            curve = line.results[0].curve
            heights = np.maximum(curve["squared_gradient"], 1e-36)
            axes.loglog(curve["round"], heights, color=colour, label=str(share), linewidth=width)
            if rule == "AFA-CD" and share != LATE:
                axes.axhline(line.mean("closed_form"), color=colour, linewidth=0.8, linestyle=":")
        style(
            axes,
            title=f"{rule}, sigma_G = {SHOWN:g}",
            x="round",
            y="||grad f||², mean by point",
        )
    legend_below(figure, title="share of the updates that are the first worker's")
    return figure


def draw_ball(found: Findings):
    """The measured ball by sigma_G^2, a line a share."""
    shown = found.where(rule="AFA-CD", share=SHARES)
    if not shown.complete:
        return None
    figure = new_figure(6.0, 4.2)
    axes = figure.add_subplot()
    squares = np.square(SIGMAS)
    for colour, share in zip(COLOURS, SHARES, strict=False):
        lines = [shown.one(sigma_G=sigma, share=share) for sigma in SIGMAS]
        closed = [line.mean("closed_form") for line in lines]
        axes.loglog(squares, closed, color=colour, linewidth=1)
        axes.loglog(squares, [line.ours for line in lines], "o", color=colour, label=_name(share))
    style(axes, title="The error ball of AFA-CD", x="sigma_G²", y="||grad f||² in the long run")
    axes.legend(frameon=False, fontsize=9)
    return figure


def _name(share: float) -> str:
    return "share 1 (the second worker is silent)" if share == 1.0 else f"share {share:g}"


def notes(found: Findings) -> str:
    """What the numbers say: a point each, and only where they say it."""
    told = [*filter(None, (there(found), grows(found), without_silence(found), left(found)))]
    return "\n".join(["## What the numbers say", "", *told]) if told else ""


THERE = """\
- *The ball is there and is as large as the theorem says.* With a silent worker AFA-CD and AFA-CS
  end within {:.0e} of sigma_G^2, relatively. A memory of updates cannot remember one that was
  never sent."""
GROWS = """\
- *It grows as sigma_G^2* for every share, to {:.0e}, by construction: the arrivals of a seed are
  the same for each sigma_G, and the recursion is linear."""
WITHOUT_SILENCE = """\
- *It does not need silence.* At a share of 0.9 AFA-CD keeps {:.0f} % of sigma_G^2, at 0.7 {:.0f} %.
  At 0.5 there is no bias, and what is left, {:.0f} %, is the noise of drawing workers: it vanishes
  with the step, the bias does not."""
LEFT = """\
- *AFA-CS leaves it* as soon as both have reported, however unequally: its squared gradient ends at
  {:.0e} or below; also where the second worker was silent for {:,} rounds, so that the ball had
  long been reached."""


def there(found: Findings) -> str:
    silent = found.where(share=1.0)
    if not silent.complete or (power := furthest(silent, number="off")) > ROUNDING:
        return ""
    return THERE.format(10**power)


def grows(found: Findings) -> str:
    alone = found.where(rule="AFA-CD")
    if not alone.complete:
        return ""
    apart = max(abs(kept(line) / kept(same_share(alone, line)) - 1) for line in alone)
    return GROWS.format(apart) if apart <= 10**ROUNDING else ""


def without_silence(found: Findings) -> str:
    """What AFA-CD keeps of the ball at shares from 1/2 to 0.9, if the closed form has it."""
    between = found.where(rule="AFA-CD", share=SHARES[1:], sigma_G=SHOWN)
    if not between.complete:
        return ""
    most, some, least = (100 * kept(between.one(share=share)) for share in SHARES[1:])
    holds = most > some > least and off(between) <= CLOSE
    return WITHOUT_SILENCE.format(most, some, least) if holds else ""


def left(found: Findings) -> str:
    both = found.where(rule="AFA-CS", share=(*SHARES[1:], LATE))
    if not both.complete or (power := furthest(both, number="last")) > GONE:
        return ""
    return LEFT.format(10**power, ROUNDS // 2)


def kept(line: Line) -> float:
    """The part of sigma_G^2 that is left."""
    return line.ours / line.get("sigma_G") ** 2


def same_share(found: Findings, line: Line) -> Line:
    return found.one(share=line.get("share"), sigma_G=SHOWN)


STUDY = Study(
    home=Path(__file__).parent,
    title="Theorem 1: the error ball, and AFA-CS leaving it",
    about=ABOUT,
    cells=[
        cell(rule, sigma, share) for rule in RULES for share in (*SHARES, LATE) for sigma in SIGMAS
    ],
    seeds={"theorem-1": SEEDS},
    show={"theorem-1": ("closed_form",)},
    task_names={"theorem-1": "Two quadratics"},
    notes=notes,
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
    ],
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
