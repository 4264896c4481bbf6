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
from anarchic.study.tables import fixed

M, N, K = 5, 10, 5  # updates a step, workers, local steps
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

ABOUT = """
Beyond the paper: four rules for asynchronous updates, side by side on LR/MNIST with two labels a
worker, five updates a round from ten workers, five local steps, 300 rounds. The first sweep draws
each update's model uniformly from the last tau + 1 versions, with workers drawn uniformly. The
second keeps the paper's last five versions and draws worker i with weight i^-s, without replacement
within a round: s = 0 is uniform, at s = 3 the last worker is a thousand times less likely to be
drawn next than the first.

**One timetable, one rate.** With a seed, all rules meet the same updates: who, when, from which
version. FedAsync, which steps at every update, takes the 1500 of them one by one; a version of the
others is every fifth of its own, and it is evaluated there. Rates are matched so that a fresh
update moves the model equally far under every rule, eta_L * G / m with eta_L = 0.1: AFA-CD and
AFA-CS with eta = 1, FedBuff, which adds up K steps, with eta = 1/K, FedAsync with a mixing weight
of 1/(mK). Nothing is tuned, neither for a cell nor for a rule. FedBuff and FedAsync discount an
update of staleness t by 1/sqrt(1 + t) as published; FedAsync counts t in its own versions, of which
there are five a round, and so discounts more, even at tau = 0. Entries are the mean over the last
ten rounds. The bounds of the claims, a hundredth each, were chosen after the results.
"""


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
        build(settings),
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
    met = {"versions_back": (at if by_delay else SKEWED_DELAY) + 1}
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


def shown(found: Findings) -> str:
    """What the sweeps show, with their numbers."""
    if not found.complete:
        return ""

    def at(rule: str, **place: float) -> str:
        return fixed(found.one(rule=rule, **place).ours, 3)

    def swing(tau: int) -> str:
        return fixed(found.one(rule="afa-cd", tau=tau).mean("last50_spread"), 3)

    def path(rule: str, x: str, places: tuple) -> str:
        return " to ".join(at(rule, **{x: place}) for place in places)

    return f"""## What it shows

**Delay.** From tau = 0 to 10 AFA-CD goes from {path("afa-cd", "tau", (0, 10))} and AFA-CS from
{path("afa-cs", "tau", (0, 10))}: a delay of a few rounds is hardly felt. At tau = 50 they stand at
{at("afa-cd", tau=50)} and {at("afa-cs", tau=50)}, differ widely by seed, and swing: the standard
deviation of AFA-CD's accuracy over the last 50 rounds is {swing(50)}, against {swing(10)} at
tau = 10. The step is too long for directions that old, as the theorems have it, whose conditions
ask for rates that shrink as tau grows.
FedBuff with these rates and constant K is AFA-CD with the staleness discount and nothing else. The
discount costs where delays are short ({path("fedbuff", "tau", (0, 10))} from tau = 0 to 10), since
it shortens a step that was not too long, and pays where they are not ({at("fedbuff", tau=100)}
at tau = 100). FedAsync discounts more and so is slower throughout, from
{path("fedasync", "tau", (0, 100))} at tau = 100.

**Skew.** AFA-CS does not feel it, {path("afa-cs", "s", (0.0, 3.0))} from s = 0 to 3: it weighs all
workers alike however seldom they come. The others follow those who come often: AFA-CD falls from
{path("afa-cd", "s", (0.0, 3.0))}, FedBuff from {path("fedbuff", "s", (0.0, 3.0))} and FedAsync from
{path("fedasync", "s", (0.0, 3.0))}. A discount is for age, and no remedy for bias.
"""


def draw(found: Findings, *, task: str, x: str, label: str):
    """Mean over the seeds, with a bar from the lowest to the highest; rules stand side by side."""
    if not found.where(task=task).run.lines:
        return None
    figure = new_figure(7.2, 4.4)
    axes = figure.add_subplot()
    delays = {tau: place for place, tau in enumerate(DELAYS)}  # evenly, as they grow by factors
    places = delays if x == "tau" else {s: 2 * s for s in SKEWS}
    for index, (rule, (_, name)) in enumerate(RULES.items()):
        lines = found.where(task=task, rule=rule).run.lines
        at = [places[line.get(x)] + 0.08 * (index - 1.5) for line in lines]
        mean = np.array([line.ours for line in lines])
        seeds = np.array([line.values("last10") for line in lines])
        low, high = mean - seeds.min(axis=1), seeds.max(axis=1) - mean
        look = {"marker": "o", "markersize": 4, "capsize": 3, **line_style(index)}
        axes.errorbar(at, mean, [low, high], label=name, **look)
    axes.set_xticks(list(places.values()), [f"{at:g}" for at in places])
    style(axes, title="LR on MNIST, p = 2, after 300 rounds", x=label, y="test accuracy")
    axes.legend(frameon=False)
    return figure


STUDY = Study(
    home=Path(__file__).parent,
    title="The noise of asynchrony: delay and skew",
    about=ABOUT,
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
            at_most=0.01,
        ),
        claim(
            "AFA-CS: what a delay of tau = 10 costs",
            "lr-delay",
            ("afa-cs", 0),
            ("afa-cs", 10),
            at_most=0.01,
        ),
        claim(
            "FedBuff less AFA-CD at tau = 100: what the discount is for",
            "lr-delay",
            ("fedbuff", 100),
            ("afa-cd", 100),
            at_least=0.01,
        ),
        claim(
            "AFA-CS: what a skew of s = 3 costs",
            "lr-skew",
            ("afa-cs", 0.0),
            ("afa-cs", 3.0),
            at_most=0.01,
        ),
        claim(
            "AFA-CS less AFA-CD at s = 3",
            "lr-skew",
            ("afa-cs", 3.0),
            ("afa-cd", 3.0),
            at_least=0.01,
        ),
    ],
    notes=shown,
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
