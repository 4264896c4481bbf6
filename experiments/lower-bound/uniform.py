"""AFA-CD where either worker reports with the same chance: the error, and what Theorem 3 allows."""

import numpy as np

from anarchic import AfaCd, Experiment, LocalWork
from anarchic.sim.engine import Engine
from anarchic.study import Cell, Findings, Job
from anarchic.study.tables import fixed, markdown
from anarchic.theory import (
    Arrivals,
    Problem,
    Rates,
    lower_bound,
    uniform_bound,
    uniform_conditions,
)
from anarchic.train.quadratic import QuadraticTask

TASK = "theorem-3"
SETTINGS = {"m": 1, "K": 1, "eta": 100.0, "eta_L": 1e-3, "sigma_G": 1.0, "rounds": 20_000}
SMOKE_ROUNDS = 30
ABOUT = """
The same two functions, each worker as likely as the other, exact gradients, one local step, no
delay, from the optimum. *measured* is the mean squared gradient over the run, *closed form* what it
must be, *bound* that of Theorem 3, *left out* the term that its proof loses, *margin* the smallest
factor by which a condition of the theorem holds.
""".strip()
LOOSE = """
The corrected bound is loose: it is {times} times the error. It would hold here with a missing term
several times smaller, so that it holds does not show that its constants are right.
""".strip()


def cell() -> Cell:
    return Cell(
        name="uniform",
        task=TASK,
        settings=SETTINGS,
        columns={"arrivals": "uniform"},
        value="over",
        measure=measure,
    )


def measure(job: Job) -> dict:
    asked = job.cell.settings
    rounds = SMOKE_ROUNDS if job.smoke else asked["rounds"]
    rates = Rates(server_lr=asked["eta"], local_lr=asked["eta_L"])
    known = Arrivals.steady(workers=2, m=asked["m"], rounds=rounds)
    problem = Problem(
        smoothness=lower_bound.SMOOTHNESS, sigma_local=0, sigma_global=asked["sigma_G"], gap=0
    )
    bound = uniform_bound(problem, rates, known)
    measured = squared_gradients(asked, rates, rounds, job.seed).mean()
    conditions = uniform_conditions(lower_bound.SMOOTHNESS, rates, known)
    step = lower_bound.pull(rates, asked["K"])
    return {
        "measured": measured,
        "closed_form": lower_bound.error_ball(asked["sigma_G"], share=0.5, step=step),
        "bound": bound.total,
        "left_out": bound.left_out,
        "over": measured / bound.total,
        "over_corrected": measured / (bound.total + bound.left_out),
        "margin": min(c.limit / c.value for c in conditions if c.value),
        "rounds": rounds,
    }


def squared_gradients(asked: dict, rates: Rates, rounds: int, seed: int) -> np.ndarray:
    """||grad f(x_t)||^2 for t = 0 .. T - 1."""
    task = QuadraticTask(lower_bound.worst_case(asked["sigma_G"]), np.array([0.0]))
    table = lower_bound.arrivals_of_one(rounds, share=0.5, m=asked["m"], seed=seed)
    work = LocalWork(lr=rates.local_lr)
    engine = Engine(Experiment(task, AfaCd(asked["m"], rates.server_lr), table, work))
    seen = []
    while engine.version < rounds:
        seen.append(float(engine.state.params[0]))
        engine.next_version()
    return lower_bound.squared_gradient(np.array(seen))


def table(found: Findings) -> str:
    outcome = found.one(task=TASK)
    names = ("measured", "closed_form", "bound", "left_out", "over", "over_corrected", "margin")
    row = [fixed(outcome.mean(name), 5) for name in names]
    header = ("measured", "closed form", "bound", "left out", "measured / bound")
    numbers = markdown((*header, "measured / corrected bound", "margin"), [row])
    times = looseness(found)
    return "\n\n".join([ABOUT, numbers, *([LOOSE.format(times=times)] if times else [])])


def looseness(found: Findings) -> str:
    """The bound with the term it leaves out, over the error."""
    over = found.one(task=TASK).mean("over_corrected")
    return f"{1 / over:.0f}" if over else ""
