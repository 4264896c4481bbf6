"""What the guard costs honest workers: cells of table 1 with it and without."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from anarchic.core.guard import FACTOR
from anarchic.sim.run import Run
from anarchic.study import Cell, Claim, Findings, Outcome, Study, accuracies, main
from anarchic.study.find import sibling
from anarchic.study.tables import fixed, markdown

GUARDS = {"off": None, "on": FACTOR}
COST = 0.003  # of accuracy
DYNAMIC = ("sync-dynamic", "async-dynamic")
# Tasks here, the tasks of table 1 that they are made of, and what is changed there.
TASKS = {
    "lr": ("lr", {}),
    "lr-fedbuff": ("lr-by-c", {}),
    "lr-afa-cs": ("lr", {"rule": "afa-cs"}),
    "cnn": ("cnn", {}),
}
NAMES = {
    "lr": "LR/MNIST, AFA-CD",
    "lr-fedbuff": "LR/MNIST, FedBuff (table 1 divided by c)",
    "lr-afa-cs": "LR/MNIST, AFA-CS",
    "cnn": "CNN/CIFAR-10, AFA-CD",
}
WHICH = {"lr-afa-cs": {"setting": DYNAMIC}, "cnn": {"p": (1,)}}  # of the cells; all of the others
AT_ONCE = {"lr": 48, "lr-fedbuff": 48, "lr-afa-cs": 48, "cnn": 8}
DEVICES, PRECISIONS = {"cnn": "cuda"}, {"cnn": "bf16"}
SHOWN = ("p", "m", "M", "local_steps", "setting")


def read(run: Run) -> dict:
    """The accuracies, and what the guard did."""
    seen = {name: run.summary.get(name) for name in ("clipped", "farthest")}
    return {**accuracies(run), **seen, "updates": run.summary["updates"]}


def cells() -> list[Cell]:
    table = sibling(__file__, "table-1").cells
    return [
        replace(
            base,
            name=f"{base.name}-{guard}",
            task=task,
            settings=replace(base.settings, guard=factor, **changed),
            columns={**base.columns, "guard": guard},
            paper=None,
            read=read,
        )
        for task, (of, changed) in TASKS.items()
        for base in table
        if base.task == of and chosen(base, WHICH.get(task, {}))
        for guard, factor in GUARDS.items()
    ]


def chosen(base: Cell, which: dict) -> bool:
    return all(base.columns[name] in values for name, values in which.items())


def pairs(found: Findings) -> list[tuple[Outcome, Outcome]]:
    """Every cell without and with the guard."""
    without = found.where(guard="off")
    return [(x, found.one(**{n: x.get(n) for n in SHOWN}, guard="on")) for x in without]


def cost(found: Findings) -> float:
    """The most that the guard changes, in either direction."""
    return max(abs(on.ours - off.ours) for off, on in pairs(found))


def farthest(found: Findings) -> float:
    """The longest honest update, in units of the scale that it met."""
    return max(on.mean("farthest") for _, on in pairs(found))


def table(found: Findings, task: str) -> str:
    header = (*SHOWN, "without", "with", "difference", "clipped", "of updates", "farthest")
    rows = []
    for off, on in pairs(found.where(task=task)):
        if not (off.results and on.results):
            continue
        left = [str(off.get(name) or "") for name in SHOWN]
        change = fixed(on.ours - off.ours, 4, signed=True) if on.ours != off.ours else "0"
        counts = [f"{on.mean(name):,.0f}" for name in ("clipped", "updates")]
        rows.append([*left, fixed(off.ours, 4), fixed(on.ours, 4), change, *counts])
        rows[-1].append(f"{on.mean('farthest'):.1f}")
    return markdown(header, rows) if rows else "Not run yet."


def claims(task: str) -> list[Claim]:
    text, of = f"{NAMES[task]}: the most that the guard changes the accuracy of a cell", "task"
    longest = f"{NAMES[task]}: the longest honest update, in units of the scale"
    return [
        Claim(text=text, of={of: task}, value=cost, at_most=COST),
        Claim(text=longest, of={of: task}, value=farthest, at_most=FACTOR),
    ]


STUDY = Study(
    folder=Path(__file__).parent,
    title="The guard: what it costs honest workers",
    cells=cells(),
    at_once=AT_ONCE,
    devices=DEVICES,
    precisions=PRECISIONS,
    tables={task: partial(table, task=task) for task in TASKS},
    task_names=NAMES,
    claims=[claim for task in TASKS for claim in claims(task)],
)

if __name__ == "__main__":
    main(STUDY)
