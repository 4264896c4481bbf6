"""Linear speed-up: rounds to a gradient norm by m, K and M, beside what the corollaries promise."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from anarchic import AfaCd, AfaCs, Experiment, LocalWork
from anarchic.data.quadratics import Quadratics
from anarchic.participation import ConstantSteps, Sampler, Timetable
from anarchic.report.figure import COLOURS, new_figure, style
from anarchic.sim.engine import Engine
from anarchic.study import Cell, Claim, Findings, Job, Line, Picture, Study, main
from anarchic.study.tables import markdown
from anarchic.theory import (
    Memory,
    Problem,
    Rates,
    corollary_rates,
    memory_bound,
    memory_conditions,
)
from anarchic.train.quadratic import QuadraticTask

# Each worker has f(x) = sum_j c_j x_j^2 / 2 with curvatures c_j evenly from 1/2 to L = 1; sigma_L^2
# is the variance of a gradient, all coordinates together; a run starts at ||x_0|| = 1. Copies of
# the problem are side by side, as coordinates of one run.
DIM, COPIES = 20, 10
CURVATURES = np.linspace(0.5, 1.0, DIM)
SIGMA_L = 1.0
TARGET = 0.0045  # of the mean of ||grad f(x_t)||^2 over the run, averaged over the copies
RUNG = 1.5  # the target is bracketed by two runs whose lengths have this ratio

SETTINGS = {"sync": 1, "async": 5}  # each worker starts from one of the last so many versions
#  line        rule     (m, M, K) of size n              sizes in the fit  beyond    settings
LINES = {
    "m": ("AFA-CD", lambda n: (n, 64, 1), (1, 2, 4, 8), (16, 32), ("sync", "async")),
    "K": ("AFA-CD", lambda n: (1, 64, n), (1, 2, 4, 8), (16, 32), ("sync", "async")),
    "M": ("AFA-CS", lambda n: (n // 2, n, 1), (4, 8, 16, 32), (64,), ("sync", "async")),
    "M, m = 4": ("AFA-CS", lambda n: (4, n, 1), (4, 8, 16), (), ("sync",)),
}
TITLES = {
    "m": "by m, K = 1",
    "K": "by K, m = 1",
    "M": "by M, half of the workers report in a round",
    "M, m = 4": "by M, four of the workers report in a round",
}
ROBIN = {"M": 32, "eta": 4.0, "eta_L": 1e-4, "rounds": 20_000}  # one worker a round, in turn

SMOKE = {"target": 24 * TARGET, "copies": 2, "rounds": 50}
WITHIN = 0.15  # of -1: an exponent as the corollaries have it
RESAMPLED = 2000  # times, for a confidence interval of 95 %

ABOUT = """
The corollaries of Theorems 2, 3 and 4 say that with eta_L = 1/sqrt(T) and eta = sqrt(n K) the mean
squared gradient over T rounds is O(1/sqrt(n K T)) and terms that vanish faster, where n is m for
AFA-CD and M for AFA-CS. The number of rounds to a given gradient norm then falls as 1/(n K): twice
the updates a round, or twice the local steps, half the rounds. Here that number is measured: the
least T such that a run *with the corollary's rates for that T* has a mean of ||grad f(x_t)||^2 over
its T rounds of 0.0045, less than a hundredth of what it starts from.

The problem is one whose constants are known: quadratics in 20 dimensions with curvatures from 1/2
to L = 1, the same for every worker (sigma_G = 0, so that there is no error floor), sigma_L = 1,
f(x_0) - f_* = 0.375. At leading order the gap and the noise then contribute alike at n = 1, and

    T = ((f(x_0) - f_* + a c sigma_L^2 / 2) / target)^2 / (n K),

c = 3/4 being the mean curvature and a = 1 for AFA-CD. In AFA-CS a row is used again until its
worker reports anew, and its noise with it: a = 2 M / m - 1 for workers drawn at random. The grey
lines of the picture are this T.

Every T is run through the simulator, ten copies of the problem at a time: the loss is separable,
so they are coordinates of one run and are independent but for the arrivals. T lies between two runs
whose lengths have the ratio 1.5 and is interpolated on logarithmic axes. The exponent is the slope
of log T over the smaller sizes of a line, with a bootstrap interval of 95 % over the copies.
*async*: each update starts from one of the last five versions (tau = 4). In the line *M* half of
the workers report in each round (m = M/2), in *M, m = 4* four of them whatever M is; AFA-CD draws m
of 64. A point that lies on two lines stands in the table under the first.
"""
FIXED_REASON = (
    "With m fixed the noise of a row is used M/m times over, which Theorem 4's proof counts as "
    "fresh each time; averaged over the rows in use it is that of m updates a round, not of M: see "
    "*AFA-CS: fast in M only where m grows with it* on the page of the experiment."
)
BOUND_REASON = (
    "The same gap in the proof: all conditions of the theorem hold in this run, and its error lies "
    "above the bound. The noise is of the order of 1/m, where the bound has 1/M."
)


def problem(copies: int, workers: int, curvatures=CURVATURES) -> Quadratics:
    """Copies of the problem as blocks of coordinates; each has the noise sigma_L^2."""
    dim = copies * len(curvatures)
    hessians = np.tile(curvatures, (workers, copies))
    return Quadratics(hessians, np.zeros((workers, dim)), SIGMA_L * np.sqrt(copies))


def squared_gradients(experiment: Experiment, copies: int) -> np.ndarray:
    """Mean of ||grad f(x_t)||^2 over t = 0 .. T-1 for every copy; shape (copies,)."""
    engine, total = Engine(experiment), np.zeros(copies)
    curvatures, rounds = experiment.task.functions.hessians[0], experiment.timetable.rounds
    for _ in range(rounds):
        gradient = (curvatures * engine.state.params).reshape(copies, -1)
        total += np.einsum("ij,ij->i", gradient, gradient)
        engine.next_version()
    return total / rounds


def run_of(asked: dict, rounds: int, copies: int, seed: int) -> np.ndarray:
    """A run of ``rounds`` rounds with the corollary's rates for that many."""
    m, M, K = asked["m"], asked["M"], asked["K"]
    memory = asked["rule"] == "AFA-CS"
    rates = corollary_rates(rounds=rounds, n=M if memory else m, local_steps=K)
    eta = rates.server_lr
    rule = AfaCs(m, eta, population=M) if memory else AfaCd(m, eta)
    sampler = Sampler(M, m, ConstantSteps(K), versions_back=asked["versions_back"])
    start = np.full(copies * DIM, DIM**-0.5)
    experiment = Experiment(
        QuadraticTask(problem(copies, M), start),
        rule,
        sampler.timetable(seed, rounds),
        LocalWork(lr=rates.local_lr, batch=1),
        seed=seed,
    )
    return squared_gradients(experiment, copies)


def leading_order(asked: dict, target: float = TARGET) -> float:
    """T where only the terms in 1/sqrt(n K T) count."""
    m, M, K = asked["m"], asked["M"], asked["K"]
    memory = asked["rule"] == "AFA-CS"
    reused = 2 * M / m - 1 if memory else 1
    curvature = CURVATURES.mean()
    constant = curvature / 2 + reused * curvature * SIGMA_L**2 / 2
    return (constant / target) ** 2 / ((M if memory else m) * K)


def bracket(
    error: Callable[[int], np.ndarray], guess: float, target: float
) -> dict[int, np.ndarray]:
    """Two numbers of rounds, one on either side of the target, with the errors of every copy."""
    seen = {round(guess): error(round(guess))}
    short = seen[round(guess)].mean() > target
    while True:
        last = list(seen)[-1]
        rounds = max(last + 1, round(last * RUNG)) if short else max(1, round(last / RUNG))
        seen[rounds] = error(rounds)
        if (seen[rounds].mean() > target) != short or rounds == 1:
            return {rounds: seen[rounds] for rounds in sorted((last, rounds))}


def crossing(rounds: Sequence[float], errors: np.ndarray, target: float) -> np.ndarray:
    """Where the line through two points on logarithmic axes meets the target.

    ``errors`` has the two points in its first axis and any number of resamples in its second.
    """
    (first, second), (low, high) = np.log(errors), np.log(rounds)
    return np.exp(low + (high - low) * (first - np.log(target)) / (first - second))


def measure(job: Job) -> dict:
    asked = job.cell.settings
    target = SMOKE["target"] if job.smoke else TARGET
    copies = SMOKE["copies"] if job.smoke else COPIES
    guess = leading_order(asked, target)
    found = bracket(lambda T: run_of(asked, T, copies, job.seed), guess, target)
    errors = np.array(list(found.values()))  # (2, copies)
    rounds = float(crossing(list(found), errors.mean(axis=1), target))
    n = asked["M"] if asked["rule"] == "AFA-CS" else asked["m"]
    return {
        "rounds": rounds,
        "leading_order": guess,
        "beside": rounds / guess,
        "step": (n * asked["K"] / rounds) ** 0.5,
        "target": target,
        "curve": {
            "rounds": list(found),
            **{f"copy{c}": errors[:, c].tolist() for c in range(copies)},
        },
    }


def in_turn(job: Job) -> dict:
    """AFA-CS where one worker a round reports, in turn: the error, and what Theorem 4 allows."""
    asked, copies = job.cell.settings, SMOKE["copies"] if job.smoke else COPIES
    M, rounds = asked["M"], SMOKE["rounds"] if job.smoke else asked["rounds"]
    rates = Rates(server_lr=asked["eta"], local_lr=asked["eta_L"])
    turn = np.arange(rounds, dtype=np.int32)
    table = Timetable(M, 1, turn % M, turn // M, turn, np.ones_like(turn))
    task = QuadraticTask(problem(copies, M, np.ones(DIM)))  # starts where the gradient is 0
    rule = AfaCs(1, rates.server_lr, population=M)
    work = LocalWork(lr=rates.local_lr, batch=1)
    errors = squared_gradients(Experiment(task, rule, table, work, seed=job.seed), copies)
    memory = Memory.steady(workers=M, rounds=rounds, row_age=M - 1, fresh=1)
    known = Problem(smoothness=1, sigma_local=SIGMA_L, sigma_global=0, gap=0)
    bound = memory_bound(known, rates, memory).total
    return {
        "measured": errors.mean(),
        "bound": bound,
        "over": errors.mean() / bound,
        "margin": min(c.limit / c.value for c in memory_conditions(1, rates, memory) if c.value),
        "rounds": rounds,
    }


def cells() -> list[Cell]:
    points = [
        point(line, n, setting)
        for line, (_, _, fitted, beyond, settings) in LINES.items()
        for n in (*fitted, *beyond)
        for setting in settings
    ]
    once: dict[str, Cell] = {}  # lines meet: m = 1 of one is K = 1 of another
    for cell in points:
        once.setdefault(cell.name, cell)
    return [*once.values(), robin()]


def point(line: str, n: int, setting: str) -> Cell:
    rule, sizes, *_ = LINES[line]
    m, M, K = sizes(n)
    name = f"{rule.lower()}-m{m}-M{M}-K{K}-{setting}"
    problem = {"dim": DIM, "copies": COPIES, "sigma_L": SIGMA_L, "target": TARGET}
    arrivals = {"m": m, "M": M, "K": K, "versions_back": SETTINGS[setting]}
    return Cell(
        name=name,
        task=rule.lower(),
        settings={"rule": rule, **arrivals, **problem},
        columns={"line": line, "m": m, "M": M, "K": K, "setting": setting},
        value="rounds",
        measure=measure,
    )


def robin() -> Cell:
    columns = {"line": "in turn", "m": 1, "M": ROBIN["M"], "K": 1, "setting": "sync"}
    settings = {**ROBIN, "dim": DIM, "copies": COPIES, "sigma_L": SIGMA_L}
    return Cell(
        name="in-turn",
        task="theorem-4",
        settings=settings,
        columns=columns,
        value="over",
        measure=in_turn,
    )


def lines_of(found: Findings, line: str, setting: str, sizes: Sequence[int]) -> list[Line]:
    """The cells of some sizes of a line, in their order."""
    rule, place, *_ = LINES[line]
    by_size = [dict(zip("mMK", place(n), strict=True)) for n in sizes]
    return [found.one(task=rule.lower(), setting=setting, **of) for of in by_size]


def exponent(found: Findings, *, line: str, setting: str) -> float:
    """The slope of log T over log n at the sizes that are fitted."""
    sizes = LINES[line][2]
    rounds = [cell.ours for cell in lines_of(found, line, setting, sizes)]
    return slope(sizes, rounds)


def slope(sizes: Sequence[float], rounds) -> float:
    return np.polyfit(np.log(sizes), np.log(rounds), 1)[0]


def interval(found: Findings, *, line: str, setting: str) -> tuple[float, float]:
    """The 95 % bootstrap interval of the exponent, over the copies of every point."""
    sizes, rng = LINES[line][2], np.random.default_rng(0)
    resampled = [resamples(cell, rng) for cell in lines_of(found, line, setting, sizes)]
    low, high = np.percentile(slope(sizes, np.array(resampled)), (2.5, 97.5))
    return float(low), float(high)


def resamples(line: Line, rng: np.random.Generator) -> np.ndarray:
    """Rounds to the target of resampled copies, the geometric mean over the seeds."""
    logs = []
    for result in line.results:
        errors = np.array([v for name, v in result.curve.items() if name.startswith("copy")])
        chosen = rng.integers(0, len(errors), (RESAMPLED, len(errors)))
        means = errors[chosen].mean(axis=1).T  # (2, resamples)
        rounds = crossing(result.curve["rounds"], means, result.numbers["target"])
        logs.append(np.log(rounds))
    return np.exp(np.mean(logs, axis=0))


def draw(found: Findings):
    """A panel a line: rounds by size, with the leading order and the fit's exponents."""
    if not found.complete:
        return None
    figure = new_figure(10.4, 7.2)
    for index, (line, (rule, _, fitted, beyond, settings)) in enumerate(LINES.items()):
        axes = figure.add_subplot(2, 2, index + 1)
        for colour, size, setting in zip(COLOURS, (9, 5), settings, strict=False):
            _draw_line(axes, found, line, setting, {"color": colour, "markersize": size})
        sizes = (*fitted, *beyond)
        expected = [c.mean("leading_order") for c in lines_of(found, line, "sync", sizes)]
        axes.loglog(sizes, expected, color="#bbbbbb", linewidth=4, label="leading order", zorder=0)
        promised = expected[0] * sizes[0] / np.array(sizes)
        axes.loglog(sizes, promised, ":", color="#000000", label="exponent -1", zorder=1)
        style(axes, title=f"{rule}, {TITLES[line]}", x=line[0], y="rounds to the target")
        axes.set_xticks(sizes, [str(n) for n in sizes])
        low, high = axes.get_ylim()
        ticks = [n * 10**e for e in range(3, 6) for n in (1, 2, 5) if low < n * 10**e < high]
        axes.set_yticks(ticks, [f"{rounds:,}" for rounds in ticks])
        axes.minorticks_off()
        axes.legend(frameon=False, fontsize=9)
    return figure


def _draw_line(axes, found: Findings, line: str, setting: str, look: dict) -> None:
    _, _, fitted, beyond, _ = LINES[line]
    rounds = [cell.ours for cell in lines_of(found, line, setting, fitted)]
    power = exponent(found, line=line, setting=setting)
    middle = np.exp(np.mean(np.log(rounds))) * (fitted / np.exp(np.mean(np.log(fitted)))) ** power
    axes.loglog(fitted, rounds, "o", **look)
    axes.loglog(fitted, middle, "--", linewidth=1, **look)
    axes.loglog([], [], "o--", label=f"{setting}, and its fit: exponent {power:.2f}", **look)
    if beyond:
        after = [cell.ours for cell in lines_of(found, line, setting, beyond)]
        axes.loglog(beyond, after, "o", markerfacecolor="none", **look)


def notes(found: Findings) -> str:
    """The exponents, and of what they show that which the numbers bear out."""
    if not found.complete:
        return ""
    parts = exponents(found), bends(found), with_m_fixed(found), above_the_bound(found)
    return "\n\n".join(filter(None, parts))


def exponents(found: Findings) -> str:
    rows = []
    for line, (rule, _, fitted, _, settings) in LINES.items():
        for setting in settings:
            value = exponent(found, line=line, setting=setting)
            low, high = interval(found, line=line, setting=setting)
            sizes = f"{fitted[0]} to {fitted[-1]}"
            between = f"{low:.3f} to {high:.3f}"
            rows.append([rule, line, sizes, setting, f"{value:.3f}", between, "-1"])
    header = ("rule", "line", "sizes", "setting", "exponent", "95 % interval", "corollary")
    return f"## Exponents\n\n{markdown(header, rows)}"


BENDS = """\
## Where the lines bend

The step is sqrt(n K / T), and T falls as n K grows, so that at a fixed target the step grows with
n K. Terms of second order, which the corollaries write as K^2/T and tau^2/T, then take more rounds
than the leading order (column *beside*: measured over leading order). Hollow points, beyond the
sizes that are fitted, show it: at m = 32 the step is {step_m:.2f}, and it takes {sync_m:.2f} times
the rounds of the leading order, under asynchrony {async_m:.2f} times; at K = 32 {sync_K:.2f} and
{async_K:.2f} times."""
ABOVE_MINUS_1 = """\
That is why the exponents are a little above -1, by {least:.3f} to {most:.3f}; the lower the target,
the nearer they are to -1."""
OLDEST = "AFA-CS under asynchrony is the farthest above: its rows are older still."
FLOOR = """\
Had the workers different optima and did some report more often than others, an error floor would be
added, as in [lower-bound](../lower-bound/README.md)."""


def bends(found: Findings) -> str:
    """What second order takes, if it takes more rounds at the largest sizes and bends the fits."""
    ends = {
        f"{setting}_{line}": lines_of(found, line, setting, (32,))[0].mean("beside")
        for line in ("m", "K")
        for setting in SETTINGS
    }
    if min(ends.values()) <= 1:
        return ""
    told = [BENDS.format(**ends, step_m=lines_of(found, "m", "sync", (32,))[0].mean("step"))]
    above = {
        (line, setting): 1 + exponent(found, line=line, setting=setting)
        for line in ("m", "K", "M")
        for setting in SETTINGS
    }
    least, most = min(above.values()), max(above.values())
    if least > 0 and most <= WITHIN:
        told.append(ABOVE_MINUS_1.format(least=least, most=most))
        told += [OLDEST] if above["M", "async"] == most else []
    return "\n".join([*told, FLOOR])


WITH_M_FIXED = """\
## AFA-CS: fast in M only where m grows with it

The corollary of Theorem 4 promises a speed-up in M, "even with partial (m) workers participation".
That is met where a fixed share of the workers reports in each round. With m = 4 of M it is not: the
exponent is {exponent:.2f}, *more* workers take more rounds, {first:,.0f} at M = 4 and {last:,.0f}
at M = 16, where AFA-CD with m = 4 takes {cd:,.0f} whatever M is. The server averages M rows, but
only m of them have new noise in them; the others carry that of former rounds, again and again, so
that over M/m rounds the noise is that of m updates a round. The rate eta = sqrt(M K) is then too
large for it. The part of the error that comes from the gap f(x_0) - f_* does fall as promised, and
the bias of unequal arrivals, which is what AFA-CS is for, does vanish
([lower-bound](../lower-bound/README.md))."""


def with_m_fixed(found: Findings) -> str:
    """What M does at fixed m, if it is the contrary of what it does where m grows with it."""
    fixed = exponent(found, line="M, m = 4", setting="sync")
    shares = [abs(1 + exponent(found, line="M", setting=setting)) for setting in SETTINGS]
    if fixed <= 0 or max(shares) > WITHIN:
        return ""
    first, last = (cell.ours for cell in lines_of(found, "M, m = 4", "sync", (4, 16)))
    cd = lines_of(found, "m", "sync", (4,))[0].ours
    return WITH_M_FIXED.format(exponent=fixed, first=first, last=last, cd=cd)


ABOVE_THE_BOUND = """\
## Theorem 4 where m < M

The proof of Theorem 4 takes the noise of a row as fresh in each round in which it is used. So
**Theorem 4 is false as printed where m < M.** Let {M} workers report in turn, one a round, with
K = 1, eta = {eta:g}, eta_L = {eta_L:g}, L = 1, sigma_L = 1 and sigma_G = 0, from the optimum. Every
condition of the theorem holds by a factor of {margin:.0f} or more, and its bound is {bound:.2e}.
The measured mean squared gradient over {rounds:,.0f} rounds is {measured:.2e}, {over:.1f} times as
much.
To leading order in the step the noise settles at eta eta_L sigma_L^2 / (2 m K), where the bound has
4 eta eta_L sigma_L^2 / (M K)."""


def above_the_bound(found: Findings) -> str:
    """The counterexample to Theorem 4, if its conditions hold and its bound does not."""
    turn = found.one(line="in turn")
    names = ("margin", "bound", "measured", "over", "rounds")
    numbers = {name: turn.mean(name) for name in names}
    if numbers["margin"] < 1 or numbers["over"] <= 1:
        return ""
    return ABOVE_THE_BOUND.format(**{**ROBIN, **numbers})


def claim(line: str, setting: str) -> Claim:
    rule, _, fitted, _, _ = LINES[line]
    fixed = line == "M, m = 4"
    name = "M at fixed m = 4" if fixed else "M with m = M/2" if line == "M" else line
    return Claim(
        text=f"{rule}, {setting}: exponent of rounds in {name}, from {fitted[0]} to {fitted[-1]}",
        of={"task": rule.lower()},
        value=partial(exponent, line=line, setting=setting),
        at_least=-1 - WITHIN,
        at_most=-1 + WITHIN,
        reason=FIXED_REASON if fixed else "",
    )


STUDY = Study(
    home=Path(__file__).parent,
    title="Linear speed-up in m, K and M",
    about=ABOUT,
    cells=cells(),
    across="setting",
    show=dict.fromkeys(("afa-cd", "afa-cs"), ("leading_order", "beside", "step")),
    digits=3,
    task_names={
        "afa-cd": "AFA-CD: rounds to the target",
        "afa-cs": "AFA-CS: rounds to the target",
        "theorem-4": "AFA-CS, one worker a round in turn: error over the bound of Theorem 4",
    },
    notes=notes,
    claims=[
        *(claim(line, setting) for line, (*_, settings) in LINES.items() for setting in settings),
        Claim(
            text="AFA-CS, one worker a round in turn: error over the bound of Theorem 4",
            of={"task": "theorem-4"},
            value=lambda found: found.one(line="in turn").ours,
            at_most=1,
            reason=BOUND_REASON,
        ),
    ],
    pictures=[
        Picture(
            file="speed-up.png",
            caption="Rounds to the target by m, K and M; hollow: beyond the sizes that are fitted",
            draw=draw,
        )
    ],
)

if __name__ == "__main__":
    main(STUDY)
