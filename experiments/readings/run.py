"""The readings that were chosen among several because they are near the paper, and the others."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from anarchic.data import Dataset
from anarchic.sim.experiment import Experiment
from anarchic.sim.settings import build, partition
from anarchic.study import Cell, Findings, Job, Study, main, sibling
from anarchic.study.tables import fixed, markdown
from anarchic.train.task import make_task

# Column "synchronous, constant" of table 1, which is read in all ways below. CIFAR-10 has p = 1
# and 10 only.
COLUMN = {"setting": "sync-constant"}
P = {"lr": (1, 2, 5, 10), "cnn": (1, 10)}
LOCAL_LR = 0.1
STEPS = {  # how the server steps: its rule and rate
    "proofs": {"rule": "afa-cd", "server_lr": 1.0},  # eta * eta_L * mean(G)
    "printed": {"rule": "afa-cd", "server_lr": 1.0 / LOCAL_LR},  # eta * mean(G)
    "models": {"rule": "fedavg", "server_lr": 1.0},  # the mean of the workers' models
}
INPUTS = {"lr": ("normalised", "0 to 1"), "cnn": ("32 cropped", "32", "28 cropped", "28")}
CHOSEN = {"lr": ("proofs", "normalised"), "cnn": ("proofs", "32 cropped")}
WAYS = {  # step and inputs; other steps are tried with the chosen inputs of CIFAR-10 alone
    "lr": [(step, inputs) for step in STEPS for inputs in INPUTS["lr"]],
    "cnn": [("proofs", inputs) for inputs in INPUTS["cnn"]]
    + [(step, "32 cropped") for step in ("printed", "models")],
}
WHOLE = "32"  # CIFAR-10's images as they are
MEAN, DEVIATION = 0.1307, 0.3081  # of MNIST's pixels
SEEDS = {"lr": 5, "cnn": 1}
AT_ONCE = {"lr": 36, "cnn": 2}  # of CIFAR-10 one reading, at both p: kept as soon as it is done
DEVICES = {"cnn": "cuda"}
PRECISIONS = {"cnn": "bf16"}
NAMES = {"lr": "LR/MNIST", "cnn": "CNN/CIFAR-10"}
NEAR = """
## How near each reading comes

Mean absolute difference to the paper over the cells, and the largest; on MNIST also how far
accuracy falls from K = 5 to K = 10 with 5 of 10 workers, at p = 1 and 2. These are numbers without
a verdict: a reading that was chosen because it comes nearest cannot fail to.
""".strip()


def cells() -> list[Cell]:
    table = [
        cell
        for cell in sibling(__file__, "table-1").cells
        if COLUMN.items() <= cell.columns.items() and cell.columns["p"] in P.get(cell.task, ())
    ]
    return [
        replace(read(base, *way), turn=turn)
        for base in table
        for turn, way in enumerate(WAYS[base.task])
    ]


def read(base: Cell, step: str, inputs: str) -> Cell:
    """A cell of table 1 in one way; the way that was chosen is that cell itself."""
    place = {name: base.columns[name] for name in ("p", "M", "local_steps")}
    columns = {**place, "reading": f"{step}, {inputs}"}
    if (step, inputs) == CHOSEN[base.task]:
        return replace(base, columns=columns)
    settings = replace(base.settings, **STEPS[step])
    name = f"{base.name}-{step}-{inputs.replace(' ', '')}"
    if inputs in (CHOSEN[base.task][1], WHOLE):
        augment = False if inputs == WHOLE else settings.augment
        settings = replace(settings, augment=augment)
        return replace(base, name=name, settings=settings, columns=columns)
    asked = {**replace(base, settings=settings).asked, "inputs": inputs}
    return replace(base, name=name, settings=asked, columns=columns, train=train)


def train(job: Job) -> Experiment:
    """With other inputs than the data set's own."""
    asked = dict(job.cell.settings)
    inputs = asked.pop("inputs")
    settings = job.settings_of(asked)
    data, parts = partition(settings)
    _MADE[data.name, ""] = data  # as it is: kept, so that it is read once
    made = build(settings, job.compute)
    task = make_task(
        settings.model,
        changed(data, inputs),
        parts,
        seed=job.seed,
        device=job.device,
        compiled=job.compute.compiled,
        precision=job.precision,
        graphs=job.graphs,
    )
    return replace(made, task=task, about={**made.about, "inputs": inputs})


_MADE: dict[tuple[str, str], Dataset] = {}  # one for all runs, or each would have its own copy


def changed(data: Dataset, inputs: str) -> Dataset:
    """The data with pixels from 0 to 1, or with smaller images, or without augmentation."""
    if (data.name, inputs) not in _MADE:
        if inputs == "0 to 1":
            made = replace(data, x_train=pixels(data.x_train), x_test=pixels(data.x_test))
        else:
            size, _, cropped = inputs.partition(" ")
            cut = partial(centre, size=int(size))
            augment = "crop-flip" if cropped else "none"
            made = replace(
                data, x_train=cut(data.x_train), x_test=cut(data.x_test), augment=augment
            )
        _MADE[data.name, inputs] = made
    return _MADE[data.name, inputs]


def pixels(x: np.ndarray) -> np.ndarray:
    """MNIST's pixels over 255, without the normalisation."""
    return (np.rint((x * DEVIATION + MEAN) * 255) / 255).astype(np.float32)


def centre(x: np.ndarray, size: int) -> np.ndarray:
    """The middle of every image."""
    margin = max(0, x.shape[-1] - size) // 2
    return np.ascontiguousarray(x[..., margin : margin + size, margin : margin + size])


def by_reading(found: Findings) -> dict[str, Findings]:
    names = dict.fromkeys(outcome.get("reading") for outcome in found)
    return {name: found.where(reading=name) for name in names}


def nearness(found: Findings) -> str:
    rows = []
    for task in INPUTS:
        for name, outcomes in by_reading(found.where(task=task)).items():
            if outcomes.complete:
                rows.append([NAMES[task], name, *distances(outcomes), *falls(outcomes)])
    header = ("", "reading", "cells", "mean", "largest", "fall, p = 1", "fall, p = 2")
    paper = ["LR/MNIST", "the paper", "", "", "", *paper_s_falls(found.where(task="lr"))]
    return f"{NEAR}\n\n{markdown(header, [*rows, paper])}" if rows else ""


def distances(found: Findings) -> list[str]:
    """The number of cells, the mean absolute difference, and the largest."""
    lost = f", {len(found.lost)} diverged" if found.lost.outcomes else ""
    worst = found.worst
    largest = "" if worst is None else fixed(abs(worst.difference), 4)
    return [f"{len(found)}{lost}", fixed(found.mean_difference, 4), largest]


def falls(found: Findings) -> list[str]:
    """How far accuracy falls from K = 5 to K = 10."""
    if found.tasks != ["lr"] or found.lost.outcomes:
        return ["", ""]
    at = [[found.one(p=p, M=10, local_steps=K).ours for K in (5, 10)] for p in (1, 2)]
    return [fixed(few - many, 4) for few, many in at]


def paper_s_falls(found: Findings) -> list[str]:
    chosen = by_reading(found)[", ".join(CHOSEN["lr"])]
    at = [[chosen.one(p=p, M=10, local_steps=K).cell.paper for K in (5, 10)] for p in (1, 2)]
    return [fixed(few - many, 4) for few, many in at]


def mean(found: Findings, *, task: str, way: tuple[str, str]) -> str:
    outcomes = found.where(task=task, reading=", ".join(way))
    return fixed(outcomes.mean_difference, 4) if outcomes.complete else ""


STUDY = Study(
    folder=Path(__file__).parent,
    title="Readings that were chosen among several, and the others",
    cells=cells(),
    seeds=SEEDS,
    at_once=AT_ONCE,
    across="reading",
    devices=DEVICES,
    precisions=PRECISIONS,
    task_names=NAMES,
    more_tables=nearness,
    facts={
        f"{task}, {', '.join(way)}": partial(mean, task=task, way=way)
        for task, ways in WAYS.items()
        for way in ways
    },
)

if __name__ == "__main__":
    main(STUDY)
