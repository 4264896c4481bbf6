"""Figures 5 and 6: uniform arrivals, biased ones, and biased ones under AFA-CS."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

from anarchic.core.rules import AfaCs
from anarchic.sim.experiment import Experiment
from anarchic.sim.settings import build
from anarchic.study import Cell, Claim, Findings, Job, Picture, Study, main, sibling
from anarchic.study.draw import END, draw_panels
from anarchic.study.tables import fixed

# Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022, arXiv:2108.09875, appendix,
# figures "Test accuracy ... with asynchrony and dynamic local steps". Their images give no numbers;
# uniform arrivals are cells of table 1, which has some.
P = (1, 2, 5, 10)  # labels a worker
C = 5  # local steps: K uniform on 1..2c
BIAS = (0.19, 0.19, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01)  # of being drawn next, by worker
TABLE = "table-1"  # whose async-dynamic cells are the uniform ones
ARRIVALS = {  # label in the pictures
    "uniform": "AFA-CD, uniform arrivals",
    "biased": "AFA-CD, biased arrivals",
    "biased-afa-cs": "AFA-CS, biased arrivals",
}
TASKS = {"lr": P, "cnn": P, "lr-by-c": P, "cnn-by-c": (1,)}  # and with how many labels
SEEDS = {"lr": 5, "cnn": 1, "lr-by-c": 5}
AT_ONCE = {"lr": 30, "cnn": 12, "lr-by-c": 30, "cnn-by-c": 3}
DEVICES = dict.fromkeys(("cnn", "cnn-by-c"), "cuda")
PRECISIONS = dict.fromkeys(DEVICES, "bf16")
NAMES = {
    "lr": "LR/MNIST (figure 5)",
    "cnn": "CNN/CIFAR-10 (figure 6)",
    "lr-by-c": "LR/MNIST, divided by c",
    "cnn-by-c": "CNN/CIFAR-10, divided by c",
}
SHORT = {"lr": "LR", "cnn": "CNN", "lr-by-c": "LR by c", "cnn-by-c": "CNN by c"}
COSTS = "what biased arrivals cost AFA-CD"
GAINS = "what AFA-CS gains over AFA-CD under bias"
LEAST = 0.01  # a difference that counts as one
UNLUCKY = (
    "One deal of the labels decides it: at p = 2 with seed 3 the two workers that are seldom heard "
    "hold the same two labels, and nobody else has these, so that this is the case of p = 1."
)
SAYS_LITTLE = (
    "The reason is not known. The paper says that AFA-CS does not perform well there and gives no "
    "numbers."
)
NOT_UNLUCKY = (
    "The reason is not known; *By seed* below has the runs. It is not an unlucky deal: with seeds "
    "0 and 1 and p = 2 each label of the two workers that are seldom heard has another holder, who "
    "comes in more than half of the rounds."
)

ABOUT = """
Five of ten workers report in each round, from one of the last five versions, with K uniform on
1..10. *uniform*: every worker is as likely as another, under AFA-CD; these are the async-dynamic
cells of [table 1](../table-1/README.md), with its numbers of the paper. *biased*: workers are drawn
without replacement with probabilities 0.19, 0.19, six times 0.1, 0.01 and 0.01, so that two of them
are seldom heard, and with few labels a worker their labels with them. *biased-afa-cs*: the same
arrivals, but the server remembers the last update of every worker and steps along the mean of all
ten.

The paper says of its figures that bias costs accuracy at p = 1 and none to speak of at p = 2, 5 and
10, and that AFA-CS makes up for it on MNIST but not on CIFAR-10. Which workers are seldom heard is
fixed by the probabilities, which labels they hold is dealt anew with every seed.

As printed, the sum of a visit's gradients is divided by its own K; *lr-by-c* has the cells of LR
with the sum divided by the constant c, under AFA-CS too. Table 1 says what speaks for that reading
and what against it; of CIFAR-10 *cnn-by-c* has p = 1. The uniform cells have the names and settings
of table 1, so that its raw results, copied here for the seeds of the other cells, need not be
trained again.

Claims compare the seeds with which both runs went to their end: one that diverged ends early, and
its number is that of a shorter run.
"""


BY_SEED = """
**By seed.** What bias costs AFA-CD at p = 2: {}.
""".strip()
HELD = """
**AFA-CS at p = 1.** With one label a worker, two labels are known to the seldom workers alone.
These come in 7 of 100 rounds, so that the server uses a row of theirs in some 14 rounds, with a
weight of 1/10 each time; under AFA-CD each has 1.4 % of the weight. On CIFAR-10 AFA-CS then stays
at {cnn:.4f}, between {low:.2f} and {high:.2f} in the later half of its run (seeds: {seeds}).
""".strip()
NOT_AGE = """
It is not the age of rows alone: they are as old when sums are divided by c, and AFA-CS then ends at
{by_c[cnn-by-c]:.4f} on CIFAR-10, and on LR at {by_c[lr-by-c]:.4f} instead of {lr:.4f}. Divided by
K, a visit of one step weighs up to ten times as much as one of ten, and its row is used until the
next.
""".strip()


@dataclass(frozen=True)
class DividedByC:
    """AFA-CS whose rows are eta_L/c * the sum of a visit's gradients, whatever its own K.

    An update brings the mean over its K steps, so its rate is multiplied by K/c.
    """

    rule: AfaCs
    c: int

    @property
    def m(self):
        return self.rule.m

    def init(self, params):
        return self.rule.init(params)

    def receive(self, state, update):
        rate = update.local_lr * update.local_steps / self.c
        return self.rule.receive(state, replace(update, local_lr=rate))

    def receive_many(self, state, block):
        rates = block.local_lrs * block.local_steps / self.c
        return self.rule.receive_many(state, replace(block, local_lrs=rates))

    def scale(self, local_lr, local_steps):
        return self.rule.scale(local_lr * local_steps / self.c, local_steps)

    def due(self, state):
        return self.rule.due(state)

    def flush(self, state):
        return self.rule.flush(state)


def train_divided_by_c(job: Job) -> Experiment:
    """AFA-CS by the cell's settings, with ``DividedByC`` around it."""
    asked = dict(job.cell.settings)
    c = asked.pop("divided_by")
    made = build(job.settings_of(asked), job.compute)
    return replace(made, rule=DividedByC(made.rule, c), about={**made.about, "divided_by": c})


def cells(uniform: Cell) -> list[Cell]:
    """The three cells of a task and a p, from the uniform one."""
    place = {"p": uniform.columns["p"]}
    settings = replace(uniform.settings, arrival_probs=BIAS)
    biased = Cell(
        name=f"p{place['p']}-biased",
        task=uniform.task,
        settings=settings,
        columns={**place, "arrivals": "biased"},
    )
    with_memory = replace(
        biased,
        name=f"{biased.name}-afa-cs",
        settings=replace(settings, rule="afa-cs", server_lr=1.0, rule_options={}),
        columns={**place, "arrivals": "biased-afa-cs"},
    )
    if uniform.task.endswith("-by-c"):
        asked = {**with_memory.asked, "divided_by": C}
        with_memory = replace(with_memory, settings=asked, train=train_divided_by_c)
    return [replace(uniform, columns={**place, "arrivals": "uniform"}), biased, with_memory]


def uniform_cells() -> list[Cell]:
    shown = {"M": 10, "local_steps": C, "setting": "async-dynamic"}
    table = sibling(__file__, TABLE).cells
    found = [cell for cell in table if shown.items() <= cell.columns.items()]
    wanted = [(task, p) for task, labels in TASKS.items() for p in labels]
    return sorted(
        (cell for cell in found if (cell.task, cell.columns["p"]) in wanted),
        key=lambda cell: wanted.index((cell.task, cell.columns["p"])),
    )


def compared(found: Findings, *arrivals: str) -> dict[int, list[float]]:
    """By seed the accuracies under some kinds of arrivals, if all runs went to their end."""
    lines = [found.one(arrivals=a) for a in arrivals]
    runs = [{result.seed: result.numbers["last10"] for result in line.ended} for line in lines]
    return {s: [run[s] for run in runs] for s in runs[0] if all(s in run for run in runs)}


def means(found: Findings, of: str, over: str) -> tuple[float, float] | None:
    pairs = compared(found, of, over).values()
    return tuple(map(fmean, zip(*pairs, strict=True))) if pairs else None


def gain(found: Findings, of: str, over: str) -> float | None:
    """Accuracy under one kind of arrivals less that under another, at the only p selected."""
    pair = means(found, of, over)
    return pair and pair[0] - pair[1]


def most(found: Findings, of: str, over: str) -> float | None:
    """The most that one kind of arrivals has over another, of the p selected."""
    by_p = [found.where(p=p) for p in {line.get("p") for line in found}]
    gains = [gain(lines, of, over) for lines in by_p]
    return None if None in gains else max(gains)


def shown(found: Findings) -> str:
    """What the cells show of AFA-CS, of the deals, and of p = 1."""
    told = [*filter(None, (by_memory(found.where(task=task)) for task in TASKS))]
    told = ["\n".join(told), by_seed(found), held(found)]
    return "\n\n".join(["## What the cells show", *filter(None, told)]) if any(told) else ""


def by_memory(lines: Findings) -> str:
    """Where AFA-CS ends above AFA-CD under biased arrivals, and where not."""
    if not lines.complete:
        return ""
    sides: dict[str, list[str]] = {"above AFA-CD": [], "not above it": []}
    for p in TASKS[lines.tasks[0]]:
        if pair := means(lines.where(p=p), "biased-afa-cs", "biased"):
            side = "above AFA-CD" if pair[0] > pair[1] else "not above it"
            sides[side].append(f"p = {p} ({pair[0]:.4f}, {pair[1]:.4f})")
    told = "; ".join(f"{side} at {', '.join(at)}" for side, at in sides.items() if at)
    return f"- {SHORT[lines.tasks[0]]}, biased: AFA-CS ends {told}."


def by_seed(found: Findings) -> str:
    """What bias costs at p = 2 with each deal of the labels."""
    lines = found.where(p=2, arrivals=("uniform", "biased"))
    if not lines.complete:
        return ""
    told = [f"{SHORT[task]} {', '.join(costs(lines.where(task=task)))}" for task in lines.tasks]
    return BY_SEED.format("; ".join(told))


def costs(lines: Findings) -> list[str]:
    """By seed what bias costs, or that a run diverged."""
    both = compared(lines, "uniform", "biased")
    seeds = sorted({result.seed for result in lines.results})
    return [fixed(both[s][0] - both[s][1], 4) if s in both else "one diverged" for s in seeds]


def held(found: Findings) -> str:
    """What is known of why AFA-CS fails where only seldom workers hold a label."""
    lines = found.where(p=1, arrivals=("biased", "biased-afa-cs"))
    if not lines.complete or (gain(lines.where(task="cnn"), "biased-afa-cs", "biased") or 0) >= 0:
        return ""
    cs = {line.get("task"): line for line in lines.where(arrivals="biased-afa-cs")}
    curve = cs["cnn"].results[0].curve["accuracy"]
    late = curve[len(curve) // 2 :]
    ours = {task: line.ours for task, line in cs.items()}
    seeds = len(cs["cnn"].results)
    told = HELD.format(cnn=ours["cnn"], low=min(late), high=max(late), seeds=seeds)
    better = all(ours[f"{task}-by-c"] > ours[task] for task in ("lr", "cnn"))
    return f"{told}\n{NOT_AGE.format(by_c=ours, lr=ours['lr'])}" if better else told


def draw(found: Findings, *, task: str, name: str):
    chosen = found.where(task=task)
    if not chosen.where(arrivals=("biased", "biased-afa-cs")).run.lines:
        return None
    return draw_panels(
        {
            f"{name}, p = {p}": [
                (label, chosen.one(p=p, arrivals=a)) for a, label in ARRIVALS.items()
            ]
            for p in P
        }
    )


def compare(text: str, *, task: str, p: tuple, of: str, over: str, **bound) -> Claim:
    """A claim of the largest difference over some p."""
    where, end = ("p = 1", "") if p == (1,) else ("p >= 2", ", at most")
    return Claim(
        text=f"{SHORT[task]}, {where}{end}: {text}",
        of={"task": task, "p": p, "arrivals": (of, over)},
        value=partial(most, of=of, over=over),
        **bound,
    )


def claims(task: str, reason: str) -> list[Claim]:
    """What the paper says of bias, on either task."""
    cost = partial(compare, COSTS, task=task, of="uniform", over="biased")
    return [cost(p=(1,), at_least=LEAST), cost(p=(2, 5, 10), at_most=0.015, reason=reason)]


def remedy(task: str, *, p: tuple = (1,), **bound) -> Claim:
    """What it says of AFA-CS."""
    text = f"{GAINS} ({'nothing' if task == 'cnn' else 'some'} in the paper)"
    return compare(text, task=task, p=p, of="biased-afa-cs", over="biased", **bound)


STUDY = Study(
    home=Path(__file__).parent,
    title="Figures 5 and 6: biased arrivals",
    about=ABOUT,
    cells=[cell for uniform in uniform_cells() for cell in cells(uniform)],
    seeds=SEEDS,
    at_once=AT_ONCE,
    devices=DEVICES,
    precisions=PRECISIONS,
    across="arrivals",
    task_names=NAMES,
    claims=[
        *claims("lr", UNLUCKY),
        remedy("lr", at_least=LEAST),
        *claims("cnn", NOT_UNLUCKY),
        remedy("cnn", at_most=LEAST),
        remedy("cnn", p=(2, 5, 10), at_most=LEAST, reason=SAYS_LITTLE),
        *claims("lr-by-c", UNLUCKY),
        remedy("lr-by-c", at_least=LEAST),
    ],
    notes=shown,
    pictures=[
        Picture(
            file="figure-5.png",
            caption="LR on MNIST, asynchronous and dynamic: mean and range over the seeds",
            draw=partial(draw, task="lr", name="LR on MNIST"),
        ),
        Picture(
            file="figure-6.png",
            caption=f"CNN on CIFAR-10, asynchronous and dynamic. {END}",
            draw=partial(draw, task="cnn", name="CNN on CIFAR-10"),
        ),
        Picture(
            file="figure-5-by-c.png",
            caption="LR on MNIST, every visit's sum of gradients divided by c",
            draw=partial(draw, task="lr-by-c", name="LR on MNIST, by c"),
        ),
    ],
)

if __name__ == "__main__":
    main(STUDY)
