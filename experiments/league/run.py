"""The league: fifteen rules under the same arrivals, each tuned with the same budget."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anarchic.data import Dataset
from anarchic.sim.experiment import Experiment
from anarchic.sim.run import Run
from anarchic.sim.settings import build, data_of
from anarchic.study import Cell, Job, Picture, Study, main
from anarchic.study.find import beside
from anarchic.study.results import FILE, Results, read_results

WORKERS = 20
ARRIVALS: dict[str, dict[str, Any]] = {  # 1,000 updates of an asynchronous rule by until_s
    "uniform": {"participation": "exponential", "idle_s": 300.0, "until_s": 42_000.0},
    "stragglers": {
        "participation": "exponential",
        "idle_s": 300.0,
        "slow_share": 0.3,
        "slow_factor": 10.0,
        "until_s": 57_000.0,
    },
    "diurnal": {"participation": "diurnal", "idle_s": 600.0, "until_s": 172_800.0},
    "biased": {"participation": "unequal", "idle_s": 2000.0, "until_s": 72_000.0},
}
WORK = {"step_s": 100.0, "local_steps": 5, "dynamic_steps": True, "batch": 32}  # K in 1..10
LABELS = {"two-labels": {"labels_per_worker": 2}, "dirichlet": {"dirichlet": 1.0}}
TASKS: dict[str, dict[str, Any]] = {
    "lr": {"data": "mnist", "model": "logistic", "workers": WORKERS},
    "cnn": {"data": "cifar10", "model": "cnn", "workers": WORKERS},
    "text": {
        "data": "shakespeare",
        "data_options": {"roles": WORKERS, "context": 4},
        "model": "logistic",
        "workers": WORKERS,
    },
}
SKEWS = {"lr": LABELS, "cnn": LABELS, "text": {"by-role": {}, "mixed": {"dirichlet": 100.0}}}
LONGER = {"cnn": 2.0}  # times the until_s of the arrivals
BUDGET = {"lr": 10, "cnn": 6, "text": 10}  # tries per rule
RANGES: dict[str, dict[str, tuple[float, float]]] = {  # where they are not those of tuning
    "lr": {},
    # With the usual ones most tries of a first search collapsed.
    "cnn": {"local_lr": (0.01, 0.2), "server_lr": (0.3, 10.0)},
    "text": {"local_lr": (0.3, 10.0)},  # inputs are nearly all 0
}
VAL_SHARE = 0.05  # of the training samples, set aside in the search
TEST_SAMPLES = {"text": 5000}  # of each evaluation of a final run; all where none is said
EVALUATIONS = 20  # of a final run, besides those of its last ten rounds
UPDATES = 1000  # about, of an asynchronous rule
SEEDS = {"lr": 5, "cnn": 5, "text": 5}
NEW = 100  # the first seed of the final runs; the search has seed 0
NAMES = {"lr": "LR/MNIST", "cnn": "CNN/CIFAR-10", "text": "LR/Shakespeare"}
TWO = {"two-labels": "Two labels per worker", "dirichlet": "Dirichlet(1.0)"}
SKEW_NAMES = {
    "lr": TWO,
    "cnn": TWO,
    "text": {"by-role": "By role", "mixed": "Mixed: Dirichlet(100) over the next character"},
}
rules, tables, ranks, pictures = (
    beside(__file__, name) for name in ("rules", "tables", "ranks", "pictures")
)
league = beside(__file__, "claims")
HELD: dict[str, Dataset] = {}  # the data of the last runs, for the next ones


def searched(task: str, skew: str, arrivals: str) -> dict[str, Any]:
    """The settings of all tries of a task; none of them looks at test data."""
    times = {**ARRIVALS[arrivals]}
    times["until_s"] *= LONGER.get(task, 1.0)
    return {
        **TASKS[task],
        **SKEWS[task][skew],
        **times,
        **WORK,
        "val_share": VAL_SHARE,
        "eval_samples": 100,
        "eval_every": 1_000_000,
    }


def final(task: str, skew: str, arrivals: str, rule: str) -> dict[str, Any]:
    """The settings of the runs that count: all training samples, and evaluations on test data."""
    settings = searched(task, skew, arrivals)
    for name in ("val_share", "eval_samples"):
        del settings[name]
    if task in TEST_SAMPLES:
        settings["eval_samples"] = TEST_SAMPLES[task]
    return {**settings, "eval_every": between(task, rule)}


def between(task: str, rule: str) -> int:
    """Rounds between two evaluations."""
    m = 1 if rule in rules.EVERY_UPDATE else 5
    rounds = UPDATES * LONGER.get(task, 1.0) / m
    if rule in rules.SYNCHRONOUS:
        rounds /= 5  # they get to fewer
    return max(1, round(rounds / EVALUATIONS))


def train(job: Job) -> Experiment:
    settings = job.settings_of(job.cell.settings)
    if not job.smoke:
        HELD.update({settings.data: data_of(settings)})
    return build(settings, job.compute)


def validation(run: Run) -> dict[str, Any]:
    """What tries are compared by: the mean accuracy of the last ten versions on validation data."""
    found = [row["val_accuracy"] for row in run.metrics if row.get("val_accuracy") is not None]
    last = run.metrics[-1]
    return {"val": float(np.mean(found[1:][-10:] or found)), "rounds": last["round"]}


def test(run: Run) -> dict[str, Any]:
    """Accuracy at the end, and by virtual time and updates."""
    rows = [row for row in run.metrics if row.get("accuracy") is not None]
    names = ("virtual_s", "updates", "accuracy")
    every = [row["accuracy"] for row in rows]
    return {
        "last10": float(np.mean(every[1:][-10:] or every)),
        "best": max(every),
        **{name: run.metrics[-1].get(name) for name in ("round", "updates", "virtual_s")},
        "bytes": run.params.nbytes,
        "curve": {name: [row.get(name) for row in rows] for name in names},
    }


def cells(results: Results) -> list[Cell]:
    """The tries; and the final runs wherever all tries of a rule have results."""
    found: dict[str, list[Cell]] = {}
    for task in TASKS:
        found[f"{task}-search"], found[task] = [], []
        for skew in SKEWS[task]:
            for arrivals in ARRIVALS:
                rows = [row(results, task, skew, arrivals, rule) for rule in rules.RULES]
                whole = all(end for _, end in rows)
                for tries, end in rows:
                    found[f"{task}-search"] += tries
                    found[task] += [
                        replace(cell, columns={**cell.columns, "whole": whole}) for cell in end
                    ]
    return [cell for task in found for cell in found[task]]


def row(
    results: Results, task: str, skew: str, arrivals: str, rule: str
) -> tuple[list[Cell], list[Cell]]:
    """The tries of one rule in one place, and its final cell, if it can be told by now."""
    settings, place = searched(task, skew, arrivals), f"{skew}-{arrivals}-{rule}"
    columns = {"skew": skew, "arrivals": arrivals, "rule": rule}
    turn = list(SKEWS[task]).index(skew)
    drawn = rules.tries(rule, BUDGET[task], RANGES[task])
    tries = [
        Cell(
            name=f"{place}-try{number}", task=f"{task}-search", value="val", train=train,
            read=validation, turn=turn, columns={**columns, "try": number},
            settings=rules.with_rates(settings, rule, rates),
        )
        for number, rates in enumerate(drawn)
    ]  # fmt: skip
    rates = rules.chosen(results, tries, drawn)
    if rates is None:
        return tries, []
    asked = rules.with_rates(final(task, skew, arrivals, rule), rule, rates)
    end = Cell(
        name=place, task=task, train=train, read=test, turn=turn, settings=asked,
        columns={**columns, "rates": rates, "whole": True},
    )  # fmt: skip
    return tries, [end]


def bounds(task: str) -> dict[str, Any]:
    """What was tuned of each rule, from where to where."""
    return {rule: rules.ranges(rule, RANGES[task]) for rule in rules.RULES}


def in_smoke(cell: Cell) -> bool:
    """One place of each task, one try of each rule."""
    return cell.columns["arrivals"] == "biased" and cell.turn == 0 and not cell.columns.get("try")


def pictures_of(task: str) -> list[Picture]:
    return [
        Picture(
            file=f"{task}-{skew}.png",
            caption=f"{NAMES[task]}, {said}: mean over the seeds, some of the rules.",
            draw=partial(pictures.draw, task=task, skew=skew),
        )
        for skew, said in SKEW_NAMES[task].items()
    ]


STUDY = Study(
    folder=Path(__file__).parent,
    title="The league: which rule should I take?",
    cells=cells(read_results(Path(__file__).with_name(FILE))),
    seeds=SEEDS,
    first_seeds=dict.fromkeys(TASKS, NEW),
    at_once={"lr-search": 60, "lr": 60, "text-search": 40, "text": 40, "cnn-search": 30, "cnn": 25},
    in_smoke=in_smoke,
    claims=league.claims(NAMES, {task: next(iter(SKEWS[task])) for task in TASKS}),
    pictures=[picture for task in TASKS for picture in pictures_of(task)],
    tables={
        **{task: partial(tables.final_tables, task=task, skews=SKEW_NAMES[task]) for task in TASKS},
        **{
            f"{task}-search": partial(tables.search_table, task=task, bounds=bounds(task))
            for task in TASKS
        },
    },
    more_tables=partial(ranks.rank_table, names=NAMES, tries=BUDGET, skews=SKEW_NAMES),
    devices=dict.fromkeys(("cnn-search", "cnn"), "cuda"),
    precisions=dict.fromkeys(("cnn-search", "cnn"), "bf16"),
    planned={task: len(SKEWS[task]) * len(ARRIVALS) * len(rules.RULES) for task in TASKS},
    task_names={**NAMES, **{f"{task}-search": f"{NAMES[task]}: the search" for task in TASKS}},
)

if __name__ == "__main__":
    main(STUDY)
