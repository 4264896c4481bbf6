"""Linear speed-up: rounds to a gradient norm by m, K and M, beside what the corollaries promise."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from anarchic import AfaCd, AfaCs, Experiment, LocalWork
from anarchic.participation import ConstantSteps, Sampler
from anarchic.report.figure import COLOURS, new_figure, style
from anarchic.study import Cell, Claim, Findings, Job, Outcome, Picture, Study, beside, main
from anarchic.study.tables import markdown
from anarchic.theory import corollary_rates
from anarchic.train.quadratic import QuadraticTask

# Each worker has f(x) = sum_j c_j x_j^2 / 2 with curvatures c_j evenly from 1/2 to L = 1; sigma_L^2
# is the variance of a gradient, all coordinates together; a run starts at ||x_0|| = 1. Copies of
# the problem are side by side, as coordinates of one run.
DIM, COPIES = 20, 10
CURVATURES = np.linspace(0.5, 1.0, DIM)
SIGMA_L = 1.0
TARGET = 0.0045  # of the mean of ||grad f(x_t)||^2 over the run, averaged over the copies
RUNG = 1.5  # the target is bracketed by two runs whose lengths have this ratio

SETTINGS = {"sync": 0, "async": 4}  # tau: the most versions that a worker may be late
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
IN_TURN = {"M": 32, "eta": 4.0, "eta_L": 1e-4, "rounds": 20_000}  # one worker per round, in turn
IN_TURN_OF = (4, 8, 12, 16, IN_TURN["M"])  # M: the same run with fewer workers, then it

SMOKE = {"target": 24 * TARGET, "copies": 2, "rounds": 50}
WITHIN = 0.15  # of -1: an exponent as the corollaries have it
RESAMPLED = 2000  # times, for a confidence interval of 95 %

FIXED_REASON = (
    "With m fixed the noise of a row is used M/m times over, which Theorem 4's proof counts as "
    "fresh each time; averaged over the rows in use it is that of m updates per round, not of M: "
    "see *AFA-CS: fast in M only where m grows with it* on the page of the experiment."
)
problem = beside(__file__, "problem")
in_turn = beside(__file__, "in_turn")


def run_of(asked: dict, rounds: int, copies: int, seed: int) -> np.ndarray:
    """A run of ``rounds`` rounds with the corollary's rates for that many."""
    m, M, K = asked["m"], asked["M"], asked["K"]
    memory = asked["rule"] == "AFA-CS"
    rates = corollary_rates(rounds=rounds, n=M if memory else m, local_steps=K)
    eta = rates.server_lr
    rule = AfaCs(m, eta, population=M) if memory else AfaCd(m, eta)
    sampler = Sampler(M, m, ConstantSteps(K), max_staleness=asked["max_staleness"])
    start = np.full(copies * DIM, DIM**-0.5)
    experiment = Experiment(
        QuadraticTask(problem.quadratics(copies, M, CURVATURES, SIGMA_L), start),
        rule,
        sampler.timetable(seed, rounds),
        LocalWork(lr=rates.local_lr, batch=1),
        seed=seed,
    )
    return problem.squared_gradients(experiment, copies)


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
    return [*once.values(), *map(in_turn_cell, IN_TURN_OF)]


def point(line: str, n: int, setting: str) -> Cell:
    rule, sizes, *_ = LINES[line]
    m, M, K = sizes(n)
    name = f"{rule.lower()}-m{m}-M{M}-K{K}-{setting}"
    problem = {"dim": DIM, "copies": COPIES, "sigma_L": SIGMA_L, "target": TARGET}
    arrivals = {"m": m, "M": M, "K": K, "max_staleness": SETTINGS[setting]}
    return Cell(
        name=name,
        task=rule.lower(),
        settings={"rule": rule, **arrivals, **problem},
        columns={"line": line, "m": m, "M": M, "K": K, "setting": setting},
        value="rounds",
        measure=measure,
    )


def in_turn_cell(M: int) -> Cell:
    name = "in-turn" if IN_TURN["M"] == M else f"in-turn-M{M}"
    settings = {**IN_TURN, "M": M, "dim": DIM, "copies": COPIES, "sigma_L": SIGMA_L}
    return in_turn.cell(settings, name, SMOKE)


def lines_of(found: Findings, line: str, setting: str, sizes: Sequence[int]) -> list[Outcome]:
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


def resamples(line: Outcome, rng: np.random.Generator) -> np.ndarray:
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
    """One panel per line: rounds by size, with the leading order and the fit's exponents."""
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


def exponents(found: Findings) -> str:
    """The exponent of every line, with its interval."""
    if not found.complete:
        return ""
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
    folder=Path(__file__).parent,
    title="Linear speed-up in m, K and M",
    cells=cells(),
    across="setting",
    show=dict.fromkeys(("afa-cd", "afa-cs"), ("leading_order", "beside", "step")),
    digits=3,
    task_names={
        "afa-cd": "AFA-CD: rounds to the target",
        "afa-cs": "AFA-CS: rounds to the target",
        in_turn.TASK: "AFA-CS, one worker per round in turn: error over the bound of Theorem 4",
    },
    more_tables=exponents,
    tables={in_turn.TASK: in_turn.table},
    facts={"Theorem 4, corrected bound over error": in_turn.looseness},
    claims=[
        *(claim(line, setting) for line, (*_, settings) in LINES.items() for setting in settings),
        *in_turn.claims(IN_TURN_OF),
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
