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
from anarchic.study.tables import fixed, markdown

# Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022, arXiv:2108.09875, appendix,
# figures "Test accuracy ... with asynchrony and dynamic local steps". Their images give no numbers;
# uniform arrivals are cells of table 1, which has some.
P = (1, 2, 5, 10)  # labels per worker
C = 5  # local steps: K uniform on 1..2c
BIAS = (0.19, 0.19, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01)  # of being drawn next, by worker
TABLE = "table-1"  # whose async-dynamic cells are the uniform ones
ARRIVALS = {  # label in the pictures
    "uniform": "AFA-CD, uniform arrivals",
    "biased": "AFA-CD, biased arrivals",
    "biased-afa-cs": "AFA-CS, biased arrivals",
}
TASKS = {"lr": P, "cnn": P, "lr-by-c": P, "cnn-by-c": (1,)}  # and with how many labels
SEEDS = {"lr": 5, "cnn": 2, "lr-by-c": 5}
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
    "The reason is not known. It is not an unlucky deal: with seeds 0 and 1 and p = 2 each label "
    "of the two workers that are seldom heard has another holder, who comes in more than half of "
    "the rounds. See *What bias costs AFA-CD, by seed* on the page of figures 5 and 6."
)


BY_MEMORY = """
## AFA-CS against AFA-CD under biased arrivals

Mean accuracy over the seeds with which both runs finished.
""".strip()
BY_SEED = """
## What bias costs AFA-CD, by seed

Accuracy under uniform arrivals less that under biased ones; *diverged* where one of the two runs
did.
""".strip()
LATE = """
## AFA-CS under biased arrivals at p = 1, by seed

The mean over the last ten evaluations, and the lowest and the highest accuracy in the second half
of the curve.
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

    def remaining(self, state):
        return self.rule.remaining(state)

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
    outcomes = [found.one(arrivals=a) for a in arrivals]
    runs = [
        {result.seed: result.numbers["last10"] for result in outcome.finished}
        for outcome in outcomes
    ]
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
    by_p = [found.where(p=p) for p in {outcome.get("p") for outcome in found}]
    gains = [gain(outcomes, of, over) for outcomes in by_p]
    return None if None in gains else max(gains)


def more_tables(found: Findings) -> str:
    return "\n\n".join(filter(None, (by_memory(found), by_seed(found), late(found))))


def by_memory(found: Findings) -> str:
    """Where AFA-CS ends above AFA-CD under biased arrivals, and where not."""
    rows = []
    for task, p in ((task, p) for task, labels in TASKS.items() for p in labels):
        outcomes = found.where(task=task, p=p, arrivals=("biased", "biased-afa-cs"))
        if outcomes.complete and (pair := means(outcomes, "biased-afa-cs", "biased")):
            difference = fixed(pair[0] - pair[1], 4, signed=True)
            rows.append([SHORT[task], str(p), *(fixed(x, 4) for x in pair), difference])
    header = ("task", "p", "AFA-CS", "AFA-CD", "difference")
    return f"{BY_MEMORY}\n\n{markdown(header, rows)}" if rows else ""


def by_seed(found: Findings) -> str:
    """What bias costs with each deal of the labels."""
    rows, most = [], max(len(x.results) for x in found)
    for task, p in ((task, p) for task, labels in TASKS.items() for p in labels):
        outcomes = found.where(task=task, p=p, arrivals=("uniform", "biased"))
        if outcomes.complete:
            by = costs(outcomes)
            rows.append([SHORT[task], str(p), *by, *[""] * (most - len(by))])
    header = ("task", "p", *(f"seed {seed}" for seed in range(most)))
    return f"{BY_SEED}\n\n{markdown(header, rows)}" if rows else ""


def costs(outcomes: Findings) -> list[str]:
    """By seed what bias costs, or that a run diverged."""
    both = compared(outcomes, "uniform", "biased")
    seeds = sorted({result.seed for result in outcomes.results})
    return [fixed(both[s][0] - both[s][1], 4) if s in both else "diverged" for s in seeds]


def late(found: Findings) -> str:
    """How AFA-CS ends where only seldom workers hold a label."""
    rows = []
    for outcome in found.where(p=1, arrivals="biased-afa-cs").run:
        for result in outcome.results:
            curve = result.curve["accuracy"]
            half = curve[len(curve) // 2 :]
            numbers = (result.numbers["last10"], min(half), max(half))
            task = SHORT[outcome.cell.task]
            rows.append([task, str(result.seed), *(fixed(x, 4) for x in numbers)])
    header = ("task", "seed", "last ten", "lowest", "highest")
    return f"{LATE}\n\n{markdown(header, rows)}" if rows else ""


def draw(found: Findings, *, task: str, name: str):
    chosen = found.where(task=task)
    if not chosen.where(arrivals=("biased", "biased-afa-cs")).run.outcomes:
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
    folder=Path(__file__).parent,
    title="Figures 5 and 6: biased arrivals",
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
    more_tables=more_tables,
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
