"""Figures 5 and 6: uniform arrivals, biased ones, and biased ones under AFA-CS."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean, stdev

from anarchic.sim.settings import Settings, partition
from anarchic.study import Cell, Claim, Findings, Picture, Result, Study, beside, main, sibling
from anarchic.study.draw import END, draw_panels
from anarchic.study.findings import difference, differences
from anarchic.study.tables import fixed, markdown

# Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022, arXiv:2108.09875, appendix,
# figures "Test accuracy ... with asynchrony and dynamic local steps". Their images give no numbers;
# uniform arrivals are cells of table 1, which has some.
by_c = beside(__file__, "by_c")
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
SEEDS = {"lr": 25, "cnn": 2, "lr-by-c": 25}
FIRST = 5  # seeds that were run first; the others were added to check what was seen with these
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
NOTHING = {"at_least": -LEAST, "at_most": LEAST}
SHARED = (
    "It is p = 2, where bias costs most if the two workers that are seldom heard share a label, "
    "which then nobody else holds: see *What bias costs at p = 2, by the deal of labels* on the "
    "page of figures 5 and 6."
)
COLLAPSE = (
    "It ends far below AFA-CD with one of the two seeds: that is a collapse, not a gain of nothing."
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

Accuracy on CIFAR-10 under uniform arrivals less that under biased ones; *diverged* where one of the
two runs did.
""".strip()
BY_BIAS = """
## What bias costs AFA-CD

Accuracy under uniform arrivals less that under biased ones, seed by seed: the mean over the pairs
of which both runs finished, and its standard error. The first five seeds were run first; those from
5 on were added to check what was seen with them.
""".strip()
BY_DEAL = """
## What bias costs at p = 2, by the deal of labels

The same for LR at p = 2, by the number of labels that nobody holds but the two workers who are
seldom heard. At p = 2 every label has two holders, so this is the number of labels that the two
share.
""".strip()
LATE = """
## AFA-CS under biased arrivals at p = 1, by seed

The mean over the last ten evaluations, and the lowest and the highest accuracy in the second half
of the curve.
""".strip()


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
        with_memory = replace(with_memory, settings=asked, train=by_c.train)
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
    values = [found.one(arrivals=a).by_seed() for a in arrivals]
    return {s: [by[s] for by in values] for s in values[0] if all(s in by for by in values)}


def means(found: Findings, of: str, over: str) -> tuple[float, float] | None:
    pairs = compared(found, of, over).values()
    return tuple(map(fmean, zip(*pairs, strict=True))) if pairs else None


def gain(found: Findings, of: str, over: str) -> float | None:
    """Accuracy under one kind of arrivals less that under another, at the only p selected."""
    return difference(found.one(arrivals=of), found.one(arrivals=over))


def gains(found: Findings, of: str, over: str) -> list[float | None]:
    """The same for every p selected."""
    return [gain(found.where(p=p), of, over) for p in {outcome.get("p") for outcome in found}]


def most(found: Findings, of: str, over: str) -> float | None:
    """The most that one kind of arrivals has over another, of the p selected."""
    every = gains(found, of, over)
    return None if None in every else max(every)


def farthest(found: Findings, of: str, over: str) -> float | None:
    """The difference that is farthest from 0, of the p selected."""
    every = gains(found, of, over)
    return None if None in every else max(every, key=abs)


def more_tables(found: Findings) -> str:
    parts = (by_memory(found), by_bias(found), by_seed(found), by_deal(found), late(found))
    return "\n\n".join(filter(None, parts))


def places() -> list[tuple[str, int]]:
    return [(task, p) for task, labels in TASKS.items() for p in labels]


def by_memory(found: Findings) -> str:
    """Where AFA-CS ends above AFA-CD under biased arrivals, and where not."""
    rows = []
    for task, p in places():
        outcomes = found.where(task=task, p=p, arrivals=("biased", "biased-afa-cs"))
        if outcomes.complete and (pair := means(outcomes, "biased-afa-cs", "biased")):
            change = fixed(pair[0] - pair[1], 4, signed=True)
            rows.append([SHORT[task], str(p), *(fixed(x, 4) for x in pair), change])
    header = ("task", "p", "AFA-CS", "AFA-CD", "difference")
    return f"{BY_MEMORY}\n\n{markdown(header, rows)}" if rows else ""


def by_bias(found: Findings) -> str:
    """What bias costs, over all seeds, over those with which it was first seen, and the others."""
    rows = []
    for task, p in places():
        if outcomes := both(found, task, p):
            by = costs(outcomes)
            first = [by[s] for s in by if s < FIRST]
            fresh = [by[s] for s in by if s >= FIRST]
            parts = (list(by.values()), first, fresh) if fresh else (list(by.values()), [], [])
            rows.append([SHORT[task], str(p), str(len(by)), *map(with_error, parts)])
    header = ("task", "p", "pairs", "all", f"seeds below {FIRST}", f"seeds from {FIRST} on")
    return f"{BY_BIAS}\n\n{markdown(header, rows)}" if rows else ""


def both(found: Findings, task: str, p: int) -> Findings | None:
    """The runs of AFA-CD under uniform and under biased arrivals, if there are any."""
    outcomes = found.where(task=task, p=p, arrivals=("uniform", "biased"))
    return outcomes if outcomes.complete else None


def costs(outcomes: Findings) -> dict[int, float]:
    """By seed what bias costs, where both runs finished."""
    return differences(outcomes.one(arrivals="uniform"), outcomes.one(arrivals="biased"))


def with_error(values: list[float]) -> str:
    """The mean and its standard error."""
    if not values:
        return ""
    error = f" ± {fixed(stdev(values) / len(values) ** 0.5, 4)}" if len(values) > 1 else ""
    return fixed(fmean(values), 4) + error


def by_seed(found: Findings) -> str:
    """What bias costs on CIFAR-10 with each deal of the labels."""
    rows, seeds = [], range(SEEDS["cnn"])
    for task, p in places():
        if task.startswith("cnn") and (outcomes := both(found, task, p)):
            by, known = costs(outcomes), {result.seed for result in outcomes.results}
            shown = (
                fixed(by[s], 4) if s in by else "diverged" if s in known else "" for s in seeds
            )
            rows.append([SHORT[task], str(p), *shown])
    header = ("task", "p", *(f"seed {seed}" for seed in seeds))
    return f"{BY_SEED}\n\n{markdown(header, rows)}" if rows else ""


@cache
def shared(seed: int) -> int:
    """How many labels nobody but the two seldom workers holds, at p = 2.

    The deal depends on the number of classes and not on the images, so any data will do.
    """
    settings = Settings(data="digits", workers=len(BIAS), labels_per_worker=2, seed=seed)
    data, parts = partition(settings)
    often = [part for part, chance in zip(parts, BIAS, strict=True) if chance > min(BIAS)]
    return data.classes - len({int(label) for part in often for label in data.y_train[part]})


def by_deal(found: Findings) -> str:
    """What bias costs LR at p = 2, by the number of labels that only the seldom workers hold."""
    rows = []
    for task in ("lr", "lr-by-c"):
        if outcomes := both(found, task, 2):
            by = costs(outcomes)
            for count in sorted({shared(seed) for seed in by}):
                values = [by[seed] for seed in by if shared(seed) == count]
                rows.append([SHORT[task], str(count), str(len(values)), with_error(values)])
    header = ("task", "labels", "seeds", "cost of bias")
    return f"{BY_DEAL}\n\n{markdown(header, rows)}" if rows else ""


def shown_cost(found: Findings, *, p: int) -> str:
    """What bias costs LR, with its standard error."""
    return with_error(list(costs(found.where(task="lr", p=p)).values()))


def shown_by_deal(found: Findings) -> str:
    """What bias costs LR at p = 2 by the number of labels shared, all of them, in a sentence."""
    by = costs(found.where(task="lr", p=2))
    said = []
    for count in sorted({shared(seed) for seed in by}):
        values = [by[seed] for seed in by if shared(seed) == count]
        seeds = f"{len(values)} seed{'s' if len(values) > 1 else ''}"
        said.append(f"{with_error(values)} with {count or 'none'} ({seeds})")
    return ", ".join(said)


def late(found: Findings) -> str:
    """How AFA-CS ends where only seldom workers hold a label."""
    rows = []
    for outcome in found.where(p=1, arrivals="biased-afa-cs").run:
        numbers = {result.seed: ends(result) for result in outcome.finished}
        if len(numbers) > FIRST:
            numbers = {f"mean of {len(numbers)}": map(fmean, zip(*numbers.values(), strict=True))}
        for seed, three in numbers.items():
            task = SHORT[outcome.cell.task]
            rows.append([task, str(seed), *(fixed(x, 4) for x in three)])
    header = ("task", "seed", "last ten", "lowest", "highest")
    return f"{LATE}\n\n{markdown(header, rows)}" if rows else ""


def ends(result: Result) -> tuple[float, float, float]:
    """The last ten evaluations, and the extremes of the second half of the curve."""
    curve = result.curve["accuracy"]
    half = curve[len(curve) // 2 :]
    return result.numbers["last10"], min(half), max(half)


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


def in_short(found: Findings) -> str:
    few = found.where(task="lr", p=1)
    if not few.complete:
        return ""
    lost, back = gain(few, "uniform", "biased"), gain(few, "biased-afa-cs", "biased")
    return (
        "**Remembering the last update of every worker helps where some seldom report.** If some "
        f"come more often than others, AFA-CD, which remembers nothing, loses {100 * lost:.1f} "
        "points of accuracy (MNIST, one label per worker). AFA-CS, which remembers, loses "
        f"{100 * (lost - back):.1f}. On CIFAR-10 that does not help."
    )


def compare(text: str, *, task: str, p: tuple, of: str, over: str, **bound) -> Claim:
    """A claim of the largest difference over some p."""
    where, end = ("p = 1", "") if p == (1,) else ("p >= 2", ", at most")
    value = farthest if len(bound.keys() & {"at_least", "at_most"}) == 2 else most
    return Claim(
        text=f"{SHORT[task]}, {where}{end}: {text}",
        of={"task": task, "p": p, "arrivals": (of, over)},
        value=partial(value, of=of, over=over),
        **bound,
    )


def claims(task: str, reason: str) -> list[Claim]:
    """What the paper says of bias, on either task."""
    cost = partial(compare, COSTS, task=task, of="uniform", over="biased")
    return [cost(p=(1,), at_least=LEAST), cost(p=(2, 5, 10), at_most=0.015, reason=reason)]


def remedy(task: str, *, p: tuple = (1,), **bound) -> Claim:
    """What it says of AFA-CS."""
    text = f"{GAINS} ({'nothing, and no loss' if task == 'cnn' else 'some in the paper'})"
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
    in_short=in_short,
    task_names=NAMES,
    claims=[
        *claims("lr", SHARED),
        remedy("lr", at_least=LEAST),
        *claims("cnn", NOT_UNLUCKY),
        remedy("cnn", **NOTHING, reason=COLLAPSE),
        remedy("cnn", p=(2, 5, 10), **NOTHING, reason=SAYS_LITTLE),
        *claims("lr-by-c", SHARED),
        remedy("lr-by-c", at_least=LEAST),
    ],
    more_tables=more_tables,
    facts={
        "cost at p = 2": partial(shown_cost, p=2),
        "cost at p = 2 by labels shared": shown_by_deal,
        "seeds of LR": lambda found: found.where(task="lr").basis,
    },
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
