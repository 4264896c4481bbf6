"""Stragglers: the time to 85 % accuracy, anarchic against synchronous."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from anarchic.participation import (
    ConstantSteps,
    ContinuousTime,
    Diurnal,
    Exponential,
    ExponentialTime,
    LogNormalTime,
    Timetable,
    Work,
    make_timetable,
)
from anarchic.participation.synchronous import timetable_of_rounds
from anarchic.report.figure import line_style, new_figure, style
from anarchic.sim.experiment import Experiment
from anarchic.sim.run import Run
from anarchic.sim.settings import Settings, build
from anarchic.study import Cell, Findings, Job, Picture, Study, accuracies, beside, main
from anarchic.study.tables import fixed, markdown

# Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022, arXiv:2108.09875, appendix:
# exponential times of rate 1, LR/MNIST, p = 1, to 85 %.
PAPER_ROUNDS = {"sync": 46, "race": 61}
PAPER_RATIO = 1 / 2.6
M, N, K = 5, 10, 5  # updates per step, workers, local steps
TARGET = 0.85
ROUNDS = 500  # at most
VISIT_S = 1800.0  # mean work of a visit; times are given in such visits
AWAKE_H = 12.0  # of a diurnal worker's day; it wakes at an hour of its own
MAX_STALENESS = 4  # of the racers: they start from one of the last five versions
WORKERS = {  # how a worker idles, and the spread of its work times, which have mean VISIT_S
    "exponential": (Exponential(0.0), ExponentialTime()),
    "log-normal": (Exponential(0.0), LogNormalTime(1.0)),
    "diurnal": (Diurnal(1.0, awake_h=AWAKE_H), ExponentialTime()),
}
ALGORITHMS = {  # rule and its rate, who makes a round, label in the picture
    "sync": ("afa-cd", 1.0, "picked", "FedAvg, the same step"),
    "fedavg": ("fedavg", 1.0, "picked", "FedAvg as published"),
    "sync-awake": ("afa-cd", 1.0, "awake", "FedAvg that knows who is awake"),
    "race": ("afa-cd", 1.0, "race", "AFA-CD, fastest 5 of 10 (reading 1)"),
    "keep-on": ("afa-cd", 1.0, None, "AFA-CD, workers keep working (reading 2)"),
    "keep-on-cs": ("afa-cs", 1.0, None, "AFA-CS, workers keep working"),
}
ANARCHIC = ("race", "keep-on", "keep-on-cs")
SEEDS = {"lr": 40}
AT_ONCE = {"lr": 30}
COMMON = Settings(
    data="mnist",
    workers=N,
    labels_per_worker=1,
    m=M,
    local_steps=K,
    rounds=ROUNDS,
    eval_every=1,
    target_accuracy=TARGET,
)
claims = beside(__file__, "claims")


def rounds_of(who: str, idle, work: Work, rng: np.random.Generator, rounds: int) -> Timetable:
    """Rounds that begin together, as ``Synchronous`` has them, under any habits.

    ``picked``: m at random; ``awake``: the m that turn up first; ``race``: the m that are done
    first. The round lasts until the last of them is done.
    """
    traits, factor = idle.traits(rng, N), np.ones(N)
    now, made = 0.0, []
    for _ in range(rounds):
        pull = idle.pulls(rng, traits, np.full(N, now)) - now
        steps = work.steps.draw(rng, factor.shape)
        push = pull + work.draw_seconds(rng, steps, factor)
        order = {"picked": rng.random(N), "awake": pull, "race": push}[who]
        chosen = np.argsort(order, kind="stable")[:M]
        made.append((chosen.astype(np.int32), steps[chosen], pull[chosen], push[chosen]))
        now += push[chosen].max()
    return timetable_of_rounds(N, *map(np.array, zip(*made, strict=True)))


def late(table: Timetable, rng: np.random.Generator) -> Timetable:
    """The same visits, each from one of the last versions that existed."""
    newest = table.base_version
    back = rng.integers(0, np.minimum(newest, MAX_STALENESS) + 1, dtype=np.int32)
    return replace(table, base_version=newest - back)


def timetable(workers: str, who: str | None, seed: int, rounds: int) -> Timetable:
    idle, spread = WORKERS[workers]
    work = Work(ConstantSteps(K), VISIT_S / K, time_distribution=spread)
    rng = np.random.default_rng([seed, list(WORKERS).index(workers)])
    if who is None:
        return make_timetable(ContinuousTime(idle, work), workers=N, m=M, rounds=rounds, rng=rng)
    table = rounds_of(who, idle, work, rng, rounds)
    return late(table, rng) if who == "race" else table


def train(job: Job) -> Experiment:
    asked = job.cell.settings
    settings = replace(COMMON, rule=asked["rule"], server_lr=asked["server_lr"])
    settings = job.settings_of(settings)
    made = build(settings, job.compute)
    table = timetable(asked["habits"], asked["who"], job.seed, settings.rounds)
    return replace(made, timetable=table, about={**made.about, **asked})


def read(run: Run) -> dict:
    """Rounds and time to the target; a run that does not reach it counts with all of its length."""
    reached = [row for row in run.metrics if (row["accuracy"] or 0) >= TARGET]
    at = reached[0] if reached else run.metrics[-1]
    return {
        "rounds_to_85": at["round"],
        "time_to_85": at["virtual_s"] / VISIT_S,
        "reached": float(bool(reached)),
        **{name: value for name, value in accuracies(run).items() if name in ("rounds", "curve")},
    }


def cell(workers: str, algorithm: str) -> Cell:
    rule, server_lr, who, _ = ALGORITHMS[algorithm]
    plain = Cell(name="common", task="lr", settings=COMMON).asked
    return Cell(
        name=f"{workers}-{algorithm}",
        task="lr",
        settings={
            **plain,
            "rule": rule,
            "server_lr": server_lr,
            "habits": workers,
            "who": who,
            "visit_s": VISIT_S,
            "max_staleness": MAX_STALENESS if who == "race" else None,
            **({"awake_h": AWAKE_H} if workers == "diurnal" else {}),
        },
        columns={"workers": workers, "algorithm": algorithm},
        value="time_to_85",
        train=train,
        read=read,
    )


def cells() -> list[Cell]:
    only = {"fedavg": ("exponential",), "sync-awake": ("diurnal",)}
    return [
        cell(workers, algorithm)
        for workers in WORKERS
        for algorithm in ALGORITHMS
        if workers in only.get(algorithm, WORKERS)
    ]


def in_short(found: Findings) -> str:
    cells = found.where(workers="exponential", algorithm=("sync", "keep-on"))
    if not cells.complete:
        return ""
    return (
        "**Faster where some are slow.** With exponential work times 85 % accuracy takes "
        f"{claims.ratio(cells):.2f} of the time that FedAvg takes, which waits for the slowest "
        "worker it picked (MNIST, one label per worker)."
    )


def ratios(found: Findings) -> str:
    """Every anarchic cell against FedAvg under the same workers, with the range over the seeds."""
    paper = str(PAPER_ROUNDS["race"]), str(PAPER_ROUNDS["sync"]), share(PAPER_RATIO)
    rows = [["exponential", "the paper's AFL", "its FedAvg", *paper, "", ""]]
    for base in found.run.where(algorithm=("sync", "sync-awake")):
        for outcome in found.run.where(workers=base.get("workers"), algorithm=ANARCHIC):
            ours, theirs = outcome.by_seed(), base.by_seed()
            by_seed = sorted(ours[seed] / theirs[seed] for seed in ours if seed in theirs)
            rows.append(
                [
                    *(base.get("workers"), outcome.get("algorithm"), base.get("algorithm")),
                    *(fixed(x.mean("rounds_to_85"), 3) for x in (outcome, base)),
                    share(outcome.ours / base.ours),
                    " to ".join(map(share, claims.interval(outcome, base))),
                    f"{share(by_seed[0])} to {share(by_seed[-1])}",
                ]
            )
    header = (
        "workers",
        "anarchic",
        "against",
        "rounds",
        "against",
        "time, ratio",
        "95 %",
        "by seed",
    )
    about = (
        "Rounds to 85 % of both, and the mean time of the first over that of the second, with a "
        "bootstrap interval over the seeds and the range of single seeds. The paper has no number "
        "for log-normal and diurnal workers, so both readings stand there without a verdict."
    )
    table = f"## Ratios\n\n{about}\n\n{markdown(header, rows)}"
    return "\n\n".join(filter(None, (table, readings(found))))


def readings(found: Findings) -> str:
    """Rounds to the target and visits per round, by reading 1 and by reading 2."""
    both = found.where(algorithm=("race", "keep-on"))
    if not both.complete:
        return ""
    rows = []
    for workers in WORKERS:
        race, keep = (both.one(workers=workers, algorithm=a) for a in ("race", "keep-on"))
        rounds = [x.mean("rounds_to_85") for x in (race, keep)]
        lengths = [x.ours / n for x, n in zip((race, keep), rounds, strict=True)]
        rows.append([workers, *(f"{n:.1f}" for n in rounds), *(f"{n:.2f}" for n in lengths)])
    header = (
        "workers",
        "rounds, reading 1",
        "reading 2",
        "visits per round, reading 1",
        "reading 2",
    )
    return f"## Rounds of the two readings\n\n{markdown(header, rows)}"


def share(ratio: float) -> str:
    """As the paper writes it, where it is a fraction."""
    return f"1/{1 / ratio:.1f}" if ratio < 0.95 else f"{ratio:.2f}"


def draw(found: Findings):
    """One dot per seed, a bar at the mean."""
    if not found.run.outcomes:
        return None
    figure = new_figure(9.0, 6.4)
    axes = figure.subplots(len(WORKERS), 1, sharex=False, height_ratios=[5, 4, 5])
    for place, workers in zip(axes, WORKERS, strict=True):
        outcomes = list(found.run.where(workers=workers))
        for at, outcome in enumerate(outcomes):
            colour = line_style(list(ALGORITHMS).index(outcome.get("algorithm")))["color"]
            times = outcome.values("time_to_85")
            place.plot(times, [at] * len(times), "o", color=colour, alpha=0.5, markersize=5)
            place.plot([outcome.ours], [at], "|", color=colour, markersize=18, markeredgewidth=2.5)
        place.set_yticks(
            range(len(outcomes)), [ALGORITHMS[x.get("algorithm")][3] for x in outcomes]
        )
        place.invert_yaxis()
        style(place, title=f"{workers} workers", x="time to 85 %, in mean visits", y="")
        place.set_xlim(left=0)
        place.margins(y=0.15)
    return figure


def rounds(found: Findings, *, algorithm: str) -> str:
    outcome = found.one(workers="exponential", algorithm=algorithm)
    return fixed(outcome.mean("rounds_to_85"), 3)


def time_saved(found: Findings, *, algorithm: str) -> str:
    ours, base = (found.one(workers="exponential", algorithm=a) for a in (algorithm, "sync"))
    low, high = (share(x) for x in claims.interval(ours, base))
    return f"{share(ours.ours / base.ours)} ({low} to {high})"


STUDY = Study(
    folder=Path(__file__).parent,
    title="Stragglers: the time to 85 %",
    cells=cells(),
    seeds=SEEDS,
    at_once=AT_ONCE,
    show={"lr": ("rounds_to_85", "reached")},
    task_names={"lr": "LR/MNIST, p = 1: time to 85 % in mean visits"},
    digits=3,
    in_short=in_short,
    claims=[
        *claims.of_readings(PAPER_ROUNDS, PAPER_RATIO),
        *claims.of_workers_that_sleep(),
    ],
    pictures=[
        Picture(
            file="stragglers.png",
            caption="Time to 85 %: one dot per seed, a bar at the mean",
            draw=draw,
        )
    ],
    more_tables=ratios,
    facts={
        **{f"rounds of {a}": partial(rounds, algorithm=a) for a in ("sync", "race", "keep-on")},
        **{f"time of {a}": partial(time_saved, algorithm=a) for a in ("race", "keep-on")},
    },
)

if __name__ == "__main__":
    main(STUDY)
