"""AFA-CS where one worker per round reports, in turn: the error, and what Theorem 4 allows."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from anarchic import AfaCs, Experiment, LocalWork
from anarchic.participation import Timetable
from anarchic.study import Cell, Claim, Findings, Job, Outcome, beside
from anarchic.study.tables import markdown
from anarchic.theory import Bound, Memory, Problem, Rates, memory_bound, memory_conditions
from anarchic.train.quadratic import QuadraticTask

problem = beside(__file__, "problem")
TASK = "theorem-4"
BOUND_REASON = (
    "The same gap in the proof: all conditions of the theorem hold in this run, and its error lies "
    "above the bound. The noise is of the order of 1/m, where the bound has 1/M."
)
TABLE = """
*measured* is the mean squared gradient over the run, *bound* that of Theorem 4 as printed,
*corrected* the one with the missing term, *margin* the smallest factor by which a condition of the
theorem holds; ± is the standard error of the mean over the copies of a run.
""".strip()
LOOSE = """
The corrected bound is loose: it is {times} times the error, about as many times for every M. That
it holds does not show that its constants are right.
""".strip()


def cell(settings: Mapping[str, Any], name: str, smoke: Mapping[str, Any]) -> Cell:
    return Cell(
        name=name,
        task=TASK,
        settings=settings,
        columns={"line": "in turn", "m": 1, "M": settings["M"], "K": 1, "setting": "sync"},
        value="over",
        measure=partial(measure, smoke=smoke),
    )


def measure(job: Job, smoke: Mapping[str, Any]) -> dict:
    asked = job.cell.settings
    copies, rounds = ((smoke if job.smoke else asked)[name] for name in ("copies", "rounds"))
    M, rates = asked["M"], rates_of(asked)
    turn = np.arange(rounds, dtype=np.int32)
    table = Timetable(M, 1, turn % M, turn // M, turn, np.ones_like(turn))
    flat = np.ones(asked["dim"])
    # It starts where the gradient is 0.
    task = QuadraticTask(problem.quadratics(copies, M, flat, asked["sigma_L"]))
    rule = AfaCs(1, rates.server_lr, population=M)
    work = LocalWork(lr=rates.local_lr, batch=1)
    experiment = Experiment(task, rule, table, work, seed=job.seed)
    errors = problem.squared_gradients(experiment, copies)
    bound = bound_of(asked, rounds)
    memory = rows_in_turn(M, rounds)
    return {
        "measured": errors.mean(),
        "bound": bound.total,
        "over": errors.mean() / bound.total,
        "over_error": errors.std(ddof=1) / np.sqrt(copies) / bound.total,
        "margin": min(c.limit / c.value for c in memory_conditions(1, rates, memory) if c.value),
        "rounds": rounds,
    }


def rates_of(asked: Mapping[str, Any]) -> Rates:
    return Rates(server_lr=asked["eta"], local_lr=asked["eta_L"])


def rows_in_turn(M: int, rounds: int) -> Memory:
    """A row is used for M rounds: (M - 1) / 2 times before, on average."""
    return Memory.steady(workers=M, rounds=rounds, row_age=M - 1, fresh=1, used=(M - 1) / 2)


def bound_of(asked: Mapping[str, Any], rounds: int) -> Bound:
    known = Problem(smoothness=1, sigma_local=asked["sigma_L"], sigma_global=0, gap=0)
    return memory_bound(known, rates_of(asked), rows_in_turn(asked["M"], rounds))


def runs(found: Findings) -> Findings:
    return found.where(line="in turn")


def run_of(found: Findings, M: int) -> Outcome:
    return found.one(line="in turn", M=M)


def beside_corrected(turn: Outcome) -> float:
    """The error over the corrected bound."""
    bound = bound_of(turn.cell.settings, round(turn.mean("rounds")))
    return turn.mean("measured") / bound.corrected


def table(found: Findings) -> str:
    """The runs beside both bounds of Theorem 4."""
    if not runs(found).complete:
        return ""
    rows = []
    for turn in runs(found):
        measured, bound, over, margin, rounds = (
            turn.mean(name) for name in ("measured", "bound", "over", "margin", "rounds")
        )
        error = turn.mean("over_error") or 0.0
        numbers = [f"{rounds:,.0f}", f"{measured:.2e}", f"{bound:.2e}", f"{over:.3f} ± {error:.3f}"]
        rows.append(
            [f"{turn.get('M')}", *numbers, f"{beside_corrected(turn):.3f}", f"{margin:.0f}"]
        )
    header = ("M / m", "rounds", "measured", "bound", "measured / bound")
    text = markdown((*header, "measured / corrected", "margin"), rows)
    return f"{TABLE}\n\n{text}\n\n{LOOSE.format(times=looseness(found))}"


def looseness(found: Findings) -> str:
    """The corrected bound over the error, from the least to the most over the runs."""
    if not runs(found).complete:
        return ""
    times = sorted(1 / beside_corrected(turn) for turn in runs(found))
    return f"{times[0]:.1f} to {times[-1]:.1f}"


def claims(workers: Sequence[int]) -> list[Claim]:
    return [*map(as_printed, workers), *map(as_corrected, workers)]


def as_printed(M: int) -> Claim:
    return Claim(
        text=f"AFA-CS, one of {M} workers per round in turn: error over the bound of Theorem 4",
        of={"task": TASK},
        value=lambda found: run_of(found, M).ours,
        at_most=1,
        reason=BOUND_REASON,
    )


def as_corrected(M: int) -> Claim:
    return Claim(
        text=f"AFA-CS, one of {M} workers per round in turn: error over the corrected bound",
        of={"task": TASK},
        value=lambda found: beside_corrected(run_of(found, M)),
        at_most=1,
    )
