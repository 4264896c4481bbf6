"""What the theorems say of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from anarchic.core.rules import AfaCd, AfaCs, FedAvg
from anarchic.core.types import Vector
from anarchic.errors import ConfigError, RunError
from anarchic.participation.timetable import Timetable
from anarchic.sim.experiment import Experiment
from anarchic.sim.record import RunDirectory
from anarchic.sim.settings import Settings, build, partition
from anarchic.theory.balance import Balance, balance_of
from anarchic.theory.estimate import estimate_constants
from anarchic.theory.numbers import Arrivals, Memory, Problem, Rates
from anarchic.theory.observed import Steps, arrivals_of, memory_of, steps_of
from anarchic.theory.start import model_at, training_loss
from anarchic.theory.verdict import Verdict, judge_general, judge_memory, judge_uniform
from anarchic.theory.warnings import about_arrivals, about_verdicts, uncovered
from anarchic.train.compute import Compute

PROBLEM = tuple(field.name for field in fields(Problem))
RATES = tuple(field.name for field in fields(Rates))


@dataclass(frozen=True)
class Report:
    """The theorems that cover a run, the numbers they were held against, and what to beware of.

    ``local_steps`` is how K is distributed. ``squared_gradients`` are estimates of ||grad f||^2 at
    the points at which the constants were estimated, from the first model to the last.
    """

    rule: str
    problem: Problem
    rates: Rates
    arrivals: Arrivals
    memory: Memory
    balance: Balance
    local_steps: Steps
    squared_gradients: tuple[float, ...]
    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...]


def judge_experiment(
    experiment: Experiment,
    points: Sequence[Vector],
    *,
    known: Mapping[str, float] | None = None,
    repeats: int = 16,
    loss: Callable[[Vector], float] | None = None,
) -> Report:
    """The theorems that cover an experiment, its constants estimated at ``points``.

    ``known`` replaces estimates (``smoothness``, ``sigma_local``, ``sigma_global``, ``gap``) and
    learning rates (``server_lr``, ``local_lr``) by numbers that are known, or tried out. Without a
    known ``gap`` it is ``loss`` of the model with which the theorem begins: a loss is at least 0.
    ``loss`` is f, the mean of the workers' own; without it the task's evaluation stands for it,
    which may be one on test samples. For AFA-CS the theorem begins where every worker has
    reported, and the experiment is run that far.
    """
    known = dict(known or {})
    if strange := sorted(known.keys() - {*PROBLEM, *RATES}):
        raise ConfigError(
            f"The theorems know no {', '.join(strange)}; there are {', '.join(PROBLEM + RATES)}."
        )
    table = experiment.timetable
    rule, rates = _rates(experiment)
    rates = replace(rates, **{name: known[name] for name in RATES if name in known})
    arrivals, memory, balance = arrivals_of(table), memory_of(table), balance_of(table)
    if "gap" not in known:
        first = model_at(experiment, memory.first if rule == "afa-cs" else 0)
        known["gap"] = loss(first) if loss else experiment.task.evaluate(first)["loss"]
    problem, gradients = _problem(experiment, points, known, repeats)
    if rule == "afa-cs":
        covering = [judge_memory(problem, rates, memory)]
    else:
        covering = [judge_general(problem, rates, arrivals)]
        covering += [judge_uniform(problem, rates, arrivals)] if balance.even else []
    warnings = [
        *uncovered(experiment),
        *about_arrivals(rule, problem, memory, balance),
        *about_verdicts(covering),
    ]
    return Report(
        rule,
        problem,
        rates,
        arrivals,
        memory,
        balance,
        steps_of(table),
        gradients,
        tuple(covering),
        tuple(warnings),
    )


def judge_run(
    path: str | Path,
    *,
    known: Mapping[str, float] | None = None,
    points: int = 3,
    repeats: int = 16,
) -> Report:
    """The theorems that cover a recorded run, wherever it was computed.

    Its data are loaded and partitioned again, on the CPU; its constants are estimated at ``points``
    points on the line from its first model to its last, or at the first alone where it has not
    finished. f is the mean of the workers' training losses.
    """
    if points < 1:
        raise ConfigError(f"The constants are estimated at points, at least one, got {points}.")
    record = RunDirectory(Path(path))
    settings, compute = _at_hand(record)
    experiment = replace(build(settings, compute), timetable=_so_far(record))
    first = experiment.task.init()
    last = record.model(experiment.task.layout) if record.finished else first
    shares = np.linspace(0, 1, points if record.finished else 1)
    line = [(first + share * (last - first)).astype(first.dtype) for share in shares]
    loss = partial(training_loss, experiment.task, *partition(settings))
    report = judge_experiment(experiment, line, known=known, repeats=repeats, loss=loss)
    if record.finished:
        return report
    unfinished = "The run has not finished: its constants were estimated at the first model alone."
    return replace(report, warnings=(unfinished, *report.warnings))


def plain(value: Any) -> Any:
    """A record as dictionaries, lists and numbers for JSON, with what its properties say.

    What is not finite becomes None: JSON has no infinity.
    """
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        names += [name for name, kind in vars(type(value)).items() if isinstance(kind, property)]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _at_hand(record: RunDirectory) -> tuple[Settings, Compute]:
    """The run's settings, and how to compute it on any machine.

    A low precision would also be lost in the differences of gradients that curvature is made of.
    """
    found = {name: value for name, value in record.settings().items() if name != "trace"}
    compute = Compute.from_record(found)
    here = replace(compute, device="cpu", precision="ieee", graphs=None, backend="batched")
    return Settings.from_record(found), here


def _so_far(record: RunDirectory) -> Timetable:
    """The timetable of the rounds that the run has behind it."""
    metrics = record.metrics() if (record.path / "metrics.csv").exists() else []
    rounds = int(metrics[-1]["round"] or 0) if metrics else 0
    if rounds < 1:
        raise RunError(f"The run in {record.path} has no round behind it yet: let it go on.")
    return record.timetable().cut(rounds)


def _problem(
    experiment: Experiment, points: Sequence[Vector], known: Mapping[str, float], repeats: int
) -> tuple[Problem, tuple[float, ...]]:
    numbers = {name: known[name] for name in PROBLEM if name in known}
    gradients: tuple[float, ...] = ()
    if not {"smoothness", "sigma_local", "sigma_global"} <= numbers.keys():
        # The smallest batch is the noisiest, and the assumption is about every worker.
        batch = min(work.batch for work in experiment.works)
        found = estimate_constants(experiment.task, points, batch=batch, repeats=repeats)
        gradients = found.squared_gradients
        names = ("smoothness", "sigma_local", "sigma_global")
        numbers = {name: getattr(found, name) for name in names} | numbers
    return Problem(**numbers), gradients


def _rates(experiment: Experiment) -> tuple[str, Rates]:
    """The rule that the theorems know, and its rates; the largest eta_L stands for all."""
    rule: Any = experiment.rule
    while hasattr(rule, "rule"):  # what is put around a rule
        rule = rule.rule
    local_lr = max(work.lr for work in experiment.works)
    if isinstance(rule, AfaCs):
        return "afa-cs", Rates(server_lr=rule.server_lr, local_lr=local_lr)
    if isinstance(rule, AfaCd):
        return "afa-cd", Rates(server_lr=rule.server_lr, local_lr=local_lr)
    steps = np.unique(experiment.timetable.local_steps)
    if isinstance(rule, FedAvg) and len(steps) == 1 and not rule.by_samples:
        # At constant K, FedAvg is AFA-CD with eta K in place of eta.
        return "fedavg", Rates(server_lr=rule.server_lr * int(steps[0]), local_lr=local_lr)
    raise ConfigError(
        f"The theorems are about AFA-CD and AFA-CS (and FedAvg at constant K, which is AFA-CD), "
        f"the run used {type(rule).__name__}: run one of those."
    )
