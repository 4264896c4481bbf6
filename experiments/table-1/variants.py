"""The cells of table 1 again, with something else that the paper leaves open."""

from collections.abc import Iterable
from dataclasses import replace
from math import prod

import numpy as np

from anarchic.models.softmax import softmax_layout
from anarchic.sim.experiment import Experiment
from anarchic.sim.settings import build, partition
from anarchic.study import Cell, Job
from anarchic.train.logistic_task import LogisticTask

START = "nn.Linear"  # its own initialisation, in place of zero


def apart(table: Iterable[Cell], changes: dict[str, dict], settings: tuple) -> list[Cell]:
    """The cells of the RNN under some settings, with one thing changed."""
    return [
        replace(
            base,
            name=f"{base.name}-{change.replace(' ', '')}",
            task="rnn-apart",
            settings=replace(base.settings, **changed),
            columns={**base.columns, "change": change},
            paper=None,
        )
        for base in table
        if base.task == "rnn" and base.columns["setting"] in settings
        for change, changed in changes.items()
    ]


def other_roles(table: Iterable[Cell], task: str, options: dict) -> list[Cell]:
    """The cells of the RNN with another draw of roles."""
    return [
        replace(base, task=task, settings=replace(base.settings, data_options=options))
        for base in table
        if base.task == "rnn"
    ]


def other_start(table: Iterable[Cell], task: str) -> list[Cell]:
    """The cells of LR, started as PyTorch's linear layer starts."""
    return [
        replace(base, task=task, settings={**base.asked, "start": START}, train=train)
        for base in table
        if base.task == "lr"
    ]


def train(job: Job) -> Experiment:
    settings = job.settings_of({n: v for n, v in job.cell.settings.items() if n != "start"})
    made = build(settings, job.compute)
    data, parts = partition(settings)
    start = linear(prod(data.x_train.shape[1:]), data.need_classes("The start"), job.seed)
    task = LogisticTask(data, parts, compiled=True, start=start)
    return replace(made, task=task, about={**made.about, "start": START})


def linear(inputs: int, classes: int, seed: int) -> np.ndarray:
    """The parameters of a fresh ``torch.nn.Linear``, in the order of the model ``logistic``."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = torch.nn.Linear(inputs, classes)
    layout = softmax_layout(inputs, classes)
    start = np.empty(layout.dim, np.float32)
    for name, view in layout.split(start).items():
        view[:] = getattr(fresh, name).detach().numpy()
    return start
