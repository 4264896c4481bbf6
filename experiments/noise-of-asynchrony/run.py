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
from anarchic.study import Cell, Claim, Findings, Job, Line, Picture, Study, accuracies, main
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

FELT = 0.01  # of accuracy; what costs no more is not felt: the bound of the claims

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
TOO_LONG = (
    "The step is too long for directions that old, as the theorems have it, whose conditions ask "
    "for rates that shrink as tau grows."
)
ONLY_DISCOUNT = (
    "FedBuff with these rates and constant K is AFA-CD with the staleness discount and nothing "
    "else."
)
SHORTENS = ": it shortens the step, which is too long only where delays are"
ALIKE = "it weighs all workers alike, however seldom they come"
NO_REMEDY = "A discount is for age, and no remedy for bias."


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
    """What the sweeps show: the numbers in any case, a verdict only where they bear it out."""
    if not found.complete:
        return ""
    delay = short_delays(found), long_delays(found), discounted(found), slower(found)
    told = {"Delay": delay, "Skew": (remembered(found), followed(found))}
    parts = (f"**{name}.** " + "\n".join(sentences) for name, sentences in told.items())
    return "\n\n".join(["## What it shows", *parts])


def cost(found: Findings, rule: str, x: str, ends: tuple) -> float:
    """What a rule loses from one end of a sweep to the other."""
    start, end = ({"rule": rule, x: at} for at in ends)
    return lead(found, of=start, over=end)


def path(found: Findings, rule: str, x: str, ends: tuple) -> str:
    return " to ".join(fixed(found.one(rule=rule, **{x: at}).ours, 3) for at in ends)


def short_delays(found: Findings) -> str:
    ends = 0, 10
    costs = [cost(found, rule, "tau", ends) for rule in ("afa-cd", "afa-cs")]
    verdict = ": a delay of a few rounds is hardly felt" if max(costs) <= FELT else ""
    cd, cs = (path(found, rule, "tau", ends) for rule in ("afa-cd", "afa-cs"))
    return f"From tau = 0 to 10 AFA-CD goes from {cd} and AFA-CS from {cs}{verdict}."


def long_delays(found: Findings) -> str:
    """What AFA comes to at tau = 50, and whether that is a step too long for its directions."""
    cd, cs = (found.one(rule=rule, tau=50) for rule in ("afa-cd", "afa-cs"))
    swing = cd.mean("last50_spread") or 0.0
    before = found.one(rule="afa-cd", tau=10).mean("last50_spread") or 0.0
    told = (
        f"At tau = 50 they stand at {_by_seed(cd)} and {_by_seed(cs)}.\nThe standard deviation of "
        f"AFA-CD's accuracy over the last 50 rounds is {fixed(swing, 3)} there and "
        f"{fixed(before, 3)} at tau = 10."
    )
    lost = min(cost(found, rule, "tau", (10, 50)) for rule in ("afa-cd", "afa-cs"))
    return f"{told}\n{TOO_LONG}" if lost > FELT and swing > before else told


def _by_seed(line: Line) -> str:
    seeds = line.values(line.cell.value)
    low, high = (fixed(value, 3) for value in (min(seeds), max(seeds)))
    return f"{fixed(line.ours, 3)} (by seed {low} to {high})"


def discounted(found: Findings) -> str:
    """At which delays FedBuff, which is AFA-CD with a discount, ends below AFA-CD or above."""
    leads = {tau: _over(found, "fedbuff", "afa-cd", tau) for tau in DELAYS}
    costs, pays = ([tau for tau in DELAYS if sign * leads[tau] > 0] for sign in (-1, 1))
    told = [
        f"{verb} up to {fixed(max(abs(leads[tau]) for tau in at), 3)} at tau = {_list(at)}"
        for verb, at in (("costs", costs), ("pays", pays))
        if at
    ]
    verdict = SHORTENS if costs and pays and max(costs) < min(pays) else ""
    return f"{ONLY_DISCOUNT}\nThe discount {' and '.join(told) or 'changes nothing'}{verdict}."


def slower(found: Findings) -> str:
    below = [tau for tau in DELAYS if _over(found, "fedasync", "fedbuff", tau) < 0]
    where = "at every delay" if len(below) == len(DELAYS) else f"at tau = {_list(below)}"
    told = f"ends below FedBuff {where}" if below else "nowhere ends below FedBuff"
    way = path(found, "fedasync", "tau", (0, 100))
    return f"FedAsync discounts more and {told}; it goes from {way} at tau = 100."


def _over(found: Findings, rule: str, other: str, tau: int) -> float:
    return lead(found, of={"rule": rule, "tau": tau}, over={"rule": other, "tau": tau})


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def remembered(found: Findings) -> str:
    ends = 0.0, 3.0
    way = f"{path(found, 'afa-cs', 's', ends)} from s = 0 to 3"
    if cost(found, "afa-cs", "s", ends) > FELT:
        return f"AFA-CS feels it, {way}."
    return f"AFA-CS does not feel it, {way}: {ALIKE}."


def followed(found: Findings) -> str:
    """Which of the others follow those who come often, and whether a discount helps."""
    ends = 0.0, 3.0
    costs = {rule: cost(found, rule, "s", ends) for rule in RULES if rule != "afa-cs"}
    ways = {rule: f"{RULES[rule][1]} from {path(found, rule, 's', ends)}" for rule in costs}
    fall = [ways[rule] for rule in costs if costs[rule] > FELT]
    told = f"Those who come often are followed by {', '.join(fall) or 'none of the others'}"
    if hold := [ways[rule] for rule in costs if costs[rule] <= FELT and fall]:
        told += f", not by {', '.join(hold)}"
    no_remedy = costs["afa-cd"] > FELT and costs["fedbuff"] >= costs["afa-cd"]
    return f"{told}." + (f"\n{NO_REMEDY}" if no_remedy else "")


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
