"""The noise of asynchrony: accuracy against delay and against the skew of arrivals."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from anarchic.core.rules import FedAsync
from anarchic.participation import Timetable
from anarchic.report.figure import line_style, new_figure, style
from anarchic.sim.experiment import Experiment
from anarchic.sim.run import Run
from anarchic.sim.settings import Settings, build, make_table
from anarchic.study import Cell, Claim, Findings, Job, Picture, Study, accuracies, main
from anarchic.study.tables import fixed, markdown

M, N, K = 5, 10, 5  # updates per step, workers, local steps
DELAYS = (0, 1, 2, 5, 10, 20, 50, 100)  # tau, the largest delay in rounds
SKEWS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)  # s: worker i = 1..10 is drawn with weight i^-s
SKEWED_DELAY = 4  # tau of the skewed arrivals: the paper's last five versions
RULES = {  # settings, and label in the pictures
    "afa-cd": ({"server_lr": 1.0}, "AFA-CD"),
    "afa-cs": ({"server_lr": 1.0}, "AFA-CS"),
    "fedbuff": ({"server_lr": 1 / K}, "FedBuff"),
    "fedasync": ({"mixing": 1 / (M * K)}, "FedAsync"),
}
SEEDS = {"lr-delay": 3, "lr-skew": 3}
AT_ONCE = {"lr-delay": 32, "lr-skew": 24}
NAMES = {
    "lr-delay": "LR/MNIST, by the largest delay tau",
    "lr-skew": "LR/MNIST, by the skew s of arrivals",
}
COMMON = Settings(
    data="mnist",
    workers=N,
    labels_per_worker=2,
    local_steps=K,
    local_lr=0.1,
    rounds=300,
    eval_every=5,
)

FELT = 0.01  # the bound of the claims, in accuracy

LEADS = """
## What the discounts change, by delay

Accuracy of FedBuff less that of AFA-CD, and of FedAsync less that of FedBuff, by tau.
""".strip()


def zipf(s: float) -> tuple[float, ...]:
    weights = np.arange(1, N + 1) ** -s
    return tuple((weights / weights.sum()).tolist())


def one_by_one(table: Timetable) -> Timetable:
    """The same visits for a server that steps at every update: version v is then its m * v."""
    return replace(table, m=1, base_version=table.base_version * table.m)


def train_fedasync(job: Job) -> Experiment:
    """FedAsync on the timetable that the other rules meet."""
    asked = {**job.cell.settings, "rule": "afa-cd", "m": M}
    mixing = asked.pop("mixing")
    settings = job.settings_of(asked)
    table = one_by_one(make_table(settings, N))
    return replace(
        build(settings, job.compute),
        timetable=table,
        rule=FedAsync(mixing, history=int(table.staleness.max()) + 1),
        eval_every=M,
        about=dict(job.cell.settings),
    )


def read_fedasync(run: Run) -> dict:
    """The usual numbers, of every m-th version alone, as rounds."""
    rows = [{**row, "round": row["round"] // M} for row in run.metrics if row["round"] % M == 0]
    return accuracies(replace(run, metrics=rows))


def cell(sweep: str, at: float, rule: str) -> Cell:
    options, _ = RULES[rule]
    by_delay = sweep == "tau"
    met = {"max_staleness": at if by_delay else SKEWED_DELAY}
    if not by_delay:
        met["arrival_probs"] = zipf(at)
    plain = Cell(
        name=f"{sweep}{at:g}-{rule}",
        task="lr-delay" if by_delay else "lr-skew",
        settings=replace(COMMON, **met),
        columns={sweep: at, "rule": rule},
    )
    if rule != "fedasync":
        return replace(plain, settings=replace(plain.settings, m=M, rule=rule, **options))
    return replace(
        plain,
        settings={**plain.asked, "rule": rule, **options},
        train=train_fedasync,
        read=read_fedasync,
    )


def lead(found: Findings, *, of: dict, over: dict) -> float:
    """Accuracy of one cell less that of another."""
    return found.one(**of).ours - found.one(**over).ours


def claim(text: str, task: str, of: tuple, over: tuple, **bound) -> Claim:
    """Of two cells, each by its rule and its place in the sweep."""
    x = "tau" if task == "lr-delay" else "s"
    one, other = ({"rule": rule, x: at} for rule, at in (of, over))
    return Claim(
        text=text,
        of={"task": task, "rule": (of[0], over[0]), x: (of[1], over[1])},
        value=partial(lead, of=one, over=other),
        **bound,
    )


def more_tables(found: Findings) -> str:
    """What the discounts of FedBuff and FedAsync change, at each delay."""
    if not found.where(task="lr-delay").complete:
        return ""
    pairs = (("fedbuff", "afa-cd"), ("fedasync", "fedbuff"))
    rows = [
        [
            f"{RULES[rule][1]} less {RULES[other][1]}",
            *(fixed(over(found, rule, other, tau), 4, signed=True) for tau in DELAYS),
        ]
        for rule, other in pairs
    ]
    return f"{LEADS}\n\n{markdown(('', *map(str, DELAYS)), rows)}"


def over(found: Findings, rule: str, other: str, tau: int) -> float:
    return lead(found, of={"rule": rule, "tau": tau}, over={"rule": other, "tau": tau})


def draw(found: Findings, *, task: str, x: str, label: str):
    """Mean over the seeds, with a bar from the lowest to the highest; rules stand side by side."""
    if not found.where(task=task).run.outcomes:
        return None
    figure = new_figure(7.2, 4.4)
    axes = figure.add_subplot()
    delays = {tau: place for place, tau in enumerate(DELAYS)}  # evenly, as they grow by factors
    places = delays if x == "tau" else {s: 2 * s for s in SKEWS}
    for index, (rule, (_, name)) in enumerate(RULES.items()):
        outcomes = found.where(task=task, rule=rule).run.outcomes
        at = [places[outcome.get(x)] + 0.08 * (index - 1.5) for outcome in outcomes]
        mean = np.array([outcome.ours for outcome in outcomes])
        seeds = np.array([outcome.values("last10") for outcome in outcomes])
        low, high = mean - seeds.min(axis=1), seeds.max(axis=1) - mean
        look = {"marker": "o", "markersize": 4, "capsize": 3, **line_style(index)}
        axes.errorbar(at, mean, [low, high], label=name, **look)
    axes.set_xticks(list(places.values()), [f"{at:g}" for at in places])
    style(axes, title="LR on MNIST, p = 2, after 300 rounds", x=label, y="test accuracy")
    axes.legend(frameon=False)
    return figure


STUDY = Study(
    folder=Path(__file__).parent,
    title="The noise of asynchrony: delay and skew",
    cells=[
        cell(sweep, at, rule)
        for sweep, places in (("tau", DELAYS), ("s", SKEWS))
        for at in places
        for rule in RULES
    ],
    seeds=SEEDS,
    at_once=AT_ONCE,
    across="rule",
    task_names=NAMES,
    claims=[
        claim(
            "AFA-CD: what a delay of tau = 10 costs",
            "lr-delay",
            ("afa-cd", 0),
            ("afa-cd", 10),
            at_most=FELT,
        ),
        claim(
            "AFA-CS: what a delay of tau = 10 costs",
            "lr-delay",
            ("afa-cs", 0),
            ("afa-cs", 10),
            at_most=FELT,
        ),
        claim(
            "FedBuff less AFA-CD at tau = 100: what the discount is for",
            "lr-delay",
            ("fedbuff", 100),
            ("afa-cd", 100),
            at_least=FELT,
        ),
        claim(
            "AFA-CS: what a skew of s = 3 costs",
            "lr-skew",
            ("afa-cs", 0.0),
            ("afa-cs", 3.0),
            at_most=FELT,
        ),
        claim(
            "AFA-CS less AFA-CD at s = 3",
            "lr-skew",
            ("afa-cs", 3.0),
            ("afa-cd", 3.0),
            at_least=FELT,
        ),
    ],
    more_tables=more_tables,
    show=dict.fromkeys(NAMES, ("last50_spread",)),
    pictures=[
        Picture(
            file="delay.png",
            caption="Accuracy by the largest delay: mean and range over the seeds",
            draw=partial(draw, task="lr-delay", x="tau", label="largest delay tau, in rounds"),
        ),
        Picture(
            file="skew.png",
            caption="Accuracy by the skew of arrivals: mean and range over the seeds",
            draw=partial(draw, task="lr-skew", x="s", label="skew s of arrivals"),
        ),
    ],
)

if __name__ == "__main__":
    main(STUDY)
