"""Figure 1: AFA-CD and AFA-CS under general arrivals, beside FedAvg."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from anarchic.study import Cell, Claim, Findings, Picture, Study, main, sibling
from anarchic.study.draw import draw_panels
from anarchic.study.findings import difference

# Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022, arXiv:2108.09875, figure 1,
# whose images give no numbers; those of the baseline are the first column of table 1.
P = (1, 2, 5, 10)  # labels per worker
BASE = ("table-1", {"M": 10, "local_steps": 5, "setting": "sync-constant"})
ANARCHY = "figures-5-6"  # whose biased cells are the anarchic ones
ALGORITHMS = {  # label in the pictures
    "baseline": "baseline: uniform arrivals, synchronous, constant steps",
    "fedavg": "FedAvg as published, in the same rounds",
    "afa-cd": "AFA-CD: biased arrivals, asynchronous, dynamic steps",
    "afa-cs": "AFA-CS: biased arrivals, asynchronous, dynamic steps",
}
SEEDS = {"lr": 25, "lr-by-c": 25}
AT_ONCE = {"lr": 40, "lr-by-c": 40}
NAMES = {"lr": "LR/MNIST", "lr-by-c": "LR/MNIST, divided by c"}
AT_P1 = (
    "With one label per worker, two labels are seldom heard of. With uniform arrivals the gap is "
    "smaller (table 1, async-dynamic), so a figure without a gap may show those."
)
AT_P2 = (
    "It is p = 2, and most of it comes where the two workers that are seldom heard share a label: "
    "see *What bias costs at p = 2, by the deal of labels* on the page of figures 5 and 6."
)
DYNAMIC = (
    "It is the cost of dynamic steps at p = 1 when a visit is divided by its own K: see table 1."
)


def cells() -> list[Cell]:
    table, shown = BASE
    baseline = [
        replace(cell, columns={"p": cell.columns["p"], "algorithm": "baseline"})
        for cell in sibling(__file__, table).cells
        if cell.task == "lr" and shown.items() <= cell.columns.items()
    ]
    anarchic = [
        replace(cell, columns={"p": cell.columns["p"], "algorithm": algorithm})
        for arrivals, algorithm in (("biased", "afa-cd"), ("biased-afa-cs", "afa-cs"))
        for cell in sibling(__file__, ANARCHY).cells
        if cell.task in NAMES and cell.columns["arrivals"] == arrivals
    ]
    found = [*baseline, *map(as_published, baseline), *anarchic]
    return [c for task in NAMES for p in P for c in found if (c.task, c.columns["p"]) == (task, p)]


def as_published(baseline: Cell) -> Cell:
    """FedAvg in the rounds of the baseline."""
    return replace(
        baseline,
        name=f"p{baseline.columns['p']}-fedavg",
        settings=replace(baseline.settings, rule="fedavg", server_lr=1.0),
        columns={**baseline.columns, "algorithm": "fedavg"},
        paper=None,
    )


def worst_gap(found: Findings, *, task: str, algorithm: str) -> float:
    """The most that an algorithm is below the baseline, over the p selected."""
    base = found.where(algorithm="baseline")
    outcomes = found.where(task=task, algorithm=algorithm)
    return max(difference(base.one(p=outcome.get("p")), outcome) for outcome in outcomes)


def close(task: str, algorithm: str, p: tuple[int, ...], reason: str = "") -> Claim:
    name = algorithm.upper() + (" by c" if task == "lr-by-c" else "")
    return Claim(
        text=f"{name}: how far it ends below the baseline at most, p = {', '.join(map(str, p))}",
        of={"p": p, "algorithm": ("baseline", algorithm)},
        value=partial(worst_gap, task=task, algorithm=algorithm),
        at_most=0.02,
        reason=reason,
    )


def draw(found: Findings, *, task: str):
    if not found.where(task=task).run.outcomes:
        return None
    of = {"baseline": "lr", "fedavg": "lr", "afa-cd": task, "afa-cs": task}
    return draw_panels(
        {
            f"LR on MNIST, p = {p}": [
                (label, found.one(task=of[a], p=p, algorithm=a)) for a, label in ALGORITHMS.items()
            ]
            for p in P
        }
    )


STUDY = Study(
    folder=Path(__file__).parent,
    title="Figure 1: FedAvg, AFA-CD and AFA-CS under general arrivals",
    cells=cells(),
    seeds=SEEDS,
    at_once=AT_ONCE,
    across="algorithm",
    task_names=NAMES,
    claims=[
        close("lr", "afa-cs", (2, 5, 10)),
        close("lr", "afa-cs", (1,), DYNAMIC),
        close("lr", "afa-cd", (2, 5, 10), AT_P2),
        close("lr", "afa-cd", (1,), AT_P1),
        close("lr-by-c", "afa-cs", P),
        close("lr-by-c", "afa-cd", (2, 5, 10), AT_P2),
        close("lr-by-c", "afa-cd", (1,), AT_P1),
    ],
    pictures=[
        Picture(
            file="figure-1.png",
            caption="LR on MNIST: mean and range over the seeds",
            draw=partial(draw, task="lr"),
        ),
        Picture(
            file="figure-1-by-c.png",
            caption="The same with AFA-CD and AFA-CS divided by c",
            draw=partial(draw, task="lr-by-c"),
        ),
    ],
)

if __name__ == "__main__":
    main(STUDY)
