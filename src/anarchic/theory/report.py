"""The theorems applied to a run, or to given numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from anarchic.core.arrays import on_host
from anarchic.core.local import Sgd
from anarchic.core.rule import Rule
from anarchic.core.rules import AfaCd, AfaCs, FedAvg
from anarchic.core.steps import SgdStep
from anarchic.core.types import Vector
from anarchic.data import Dataset, Parts
from anarchic.errors import ConfigError
from anarchic.participation.timetable import Timetable
from anarchic.sim.engine import Engine
from anarchic.sim.experiment import Experiment
from anarchic.sim.record import RunDirectory
from anarchic.sim.settings import partition
from anarchic.theory.estimate import estimate_constants
from anarchic.theory.numbers import PROBLEM, RATES, Arrivals, KnownNumbers, Memory, Problem, Rates
from anarchic.theory.observed import (
    Balance,
    StepsTaken,
    arrivals_of,
    balance_of,
    memory_of,
    steps_of,
)
from anarchic.theory.recorded import experiment_of
from anarchic.theory.verdict import (
    NO_DRAW,
    Calculation,
    Verdict,
    calculate,
    judge_general,
    judge_memory,
    judge_uniform,
)
from anarchic.train.task import DataTask, Task

POINTS = 3  # models at which constants are estimated
REPEATS = 16  # batches per worker and model
LEFT_OUT = {
    3: "the variance of drawing workers at random",
    4: "the noise of rows that are used again",
}


@dataclass(frozen=True)
class Report:
    """The theorems that cover a run, the numbers that they were applied to, and warnings.

    ``local_steps`` is the distribution of K. ``squared_gradients`` are estimates of ||grad f||^2 at
    the points at which the constants were estimated, from the first model to the last.
    """

    rule: str
    problem: Problem
    rates: Rates
    arrivals: Arrivals
    memory: Memory
    balance: Balance
    local_steps: StepsTaken
    squared_gradients: tuple[float, ...]
    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...]


def judge(
    known: KnownNumbers | None = None,
    *,
    run: str | Path | None = None,
    points: int = POINTS,
    repeats: int = REPEATS,
) -> Calculation | Report:
    """The theorems for known numbers, or for the recorded ``run`` in this directory or store.

    For numbers see ``calculate``. A run is judged on the CPU; its data are loaded and partitioned
    again. Its constants are estimated with ``repeats`` batches at ``points`` models on the line
    from the first model to the last, or only at the first if the run has not finished. f is the
    mean of the workers' training losses. A store has no data: see ``judge_store``.
    """
    known = known or KnownNumbers()
    if run is None:
        return calculate(known)
    if counted := known.participation:
        raise ConfigError(
            f"The run has its own timetable: leave out {', '.join(counted)}, or leave out the run."
        )
    if points < 1:
        raise ConfigError(f"The constants are estimated at points >= 1 models, got {points}.")
    if "://" in str(run) or Path(run).is_file():
        return judge_store(run, known)
    return _judge_run(RunDirectory(Path(run)), known, points, repeats)


def judge_store(where: str | Path, known: KnownNumbers) -> Report:
    """The theorems for the live run in a server's store, with its arrivals and rates.

    Its data stayed with the workers, so its constants are those that are known, or 1; the gap is
    the first loss that was evaluated, where none is given.
    """
    from anarchic.server.history import history
    from anarchic.server.replay import timetable_of
    from anarchic.server.settings import served_rule
    from anarchic.server.store import open_store

    with closing(open_store(str(where), create=False)) as store:
        table, found = timetable_of(store), history(store)
    rule = served_rule(found.rules)
    name, rates = _rates(rule, max(found.local_lrs), table)
    first = next((row["loss"] for row in found.rows if row.get("loss") is not None), None)
    if known.gap is None and first is not None:
        known = replace(known, gap=float(first))
    missing = [each for each in PROBLEM if getattr(known, each) is None]
    problem = Problem(**dict.fromkeys(PROBLEM, 1.0) | known.given(PROBLEM))
    warnings = _coverage_warnings(rule, set(), set(found.local_lrs))
    if missing:
        told = ", ".join(missing)
        warnings.insert(0, f"A store has no data to estimate {told} from: 1 was taken. Give them.")
    rates = replace(rates, **known.given(RATES))
    return _report(name, (problem, ()), rates, table, warnings)


def judge_experiment(
    experiment: Experiment,
    points: Sequence[Vector],
    *,
    known: KnownNumbers | None = None,
    repeats: int = REPEATS,
    loss: Callable[[Vector], float] | None = None,
) -> Report:
    """The theorems that cover an experiment, its constants estimated at ``points``.

    ``known`` replaces estimates (``smoothness``, ``sigma_local``, ``sigma_global``, ``gap``) and
    learning rates. The default of ``gap`` is ``loss`` at the first model that the theorem is about,
    since a loss is at least 0. ``loss`` is f, the mean of the workers' own; the default is the
    task's evaluation, which may use test samples. Theorem 4 (AFA-CS) begins when every worker has
    reported, so the experiment is run up to there.
    """
    known = known or KnownNumbers()
    table = experiment.timetable
    rule, rates = _rates(experiment.rule, max(work.lr for work in experiment.works), table)
    rates = replace(rates, **known.given(RATES))
    if known.gap is None:
        first = model_at(experiment, memory_of(table).first if rule == "afa-cs" else 0)
        gap = loss(first) if loss else experiment.task.evaluate(first)["loss"]
        known = replace(known, gap=gap)
    problem = _problem(experiment, points, known, repeats)
    others = {type(w.rule).__name__ for w in experiment.works if not isinstance(w.rule, Sgd)}
    lrs = {work.lr for work in experiment.works}
    return _report(rule, problem, rates, table, _coverage_warnings(experiment.rule, others, lrs))


def _report(
    rule: str,
    found: tuple[Problem, tuple[float, ...]],
    rates: Rates,
    table: Timetable,
    warnings: Sequence[str],
) -> Report:
    """The theorems that cover a rule, for a problem whose gradients were ``found`` with it."""
    problem, gradients = found
    arrivals, memory, balance = arrivals_of(table), memory_of(table), balance_of(table)
    if rule == "afa-cs":
        covering = [judge_memory(problem, rates, memory)]
    else:
        covering = [judge_general(problem, rates, arrivals)]
        drawn = balance.even and arrivals.m <= arrivals.workers
        covering += [judge_uniform(problem, rates, arrivals)] if drawn else []
        if balance.even and not drawn:
            warnings = [*warnings, NO_DRAW.format(m=arrivals.m, workers=arrivals.workers)]
    warnings = [
        *warnings,
        *_arrival_warnings(rule, problem, memory, balance),
        *_verdict_warnings(covering),
    ]
    counted = (arrivals, memory, balance, steps_of(table))
    return Report(rule, problem, rates, *counted, gradients, tuple(covering), tuple(warnings))


def _judge_run(record: RunDirectory, known: KnownNumbers, points: int, repeats: int) -> Report:
    settings, experiment = experiment_of(record)
    first = experiment.task.init()
    last = record.model(experiment.task.layout) if record.finished else first
    shares = np.linspace(0, 1, points if record.finished else 1)
    with np.errstate(all="ignore"):  # a model that is not finite is refused with the estimates
        line = [(first + share * (last - first)).astype(first.dtype) for share in shares[1:]]
    loss = partial(training_loss, experiment.task, *partition(settings))
    report = judge_experiment(experiment, [first, *line], known=known, repeats=repeats, loss=loss)
    if record.finished:
        return report
    unfinished = "The run has not finished: its constants were estimated at the first model only."
    return replace(report, warnings=(unfinished, *report.warnings))


def model_at(experiment: Experiment, version: int) -> Vector:
    """The model of ``version``, by running that far again: a record keeps only the last model.

    Theorem 4 begins when every worker has a row. If all are about equally likely, that takes about
    K ln M gradients per worker, less than the estimates take.
    """
    engine = Engine(experiment)
    with experiment.computing():
        while engine.version < version:
            engine.next_version()
    return on_host(engine.state.params)


def training_loss(task: Task, data: Dataset, parts: Parts, params: Vector) -> float:
    """f, the mean over workers of their mean losses on their own samples.

    Samples are not cropped or flipped here.
    """
    assert isinstance(task, DataTask)  # settings make no other
    losses = []
    for part in parts:
        x, y = data.x_train[part], data.y_train[part]
        held = Dataset(data.name, x, y, x, y, data.classes)
        own = task.on_data(held, [np.arange(len(part))])
        losses.append(own.evaluate(params)["loss"])
    return float(np.mean(losses))


def as_dict(value: Any) -> Any:
    """A record as dictionaries, lists and numbers for JSON, its properties included.

    Numbers that are not finite become None: JSON has no infinity.
    """
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        names += [name for name, kind in vars(type(value)).items() if isinstance(kind, property)]
        return {name: as_dict(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: as_dict(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [as_dict(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _problem(
    experiment: Experiment, points: Sequence[Vector], known: KnownNumbers, repeats: int
) -> tuple[Problem, tuple[float, ...]]:
    numbers = known.given(PROBLEM)
    gradients: tuple[float, ...] = ()
    names = {"smoothness", "sigma_local", "sigma_global"}
    if not names <= numbers.keys():
        # The assumption is about every worker, and the smallest batch is the noisiest.
        batch = min(work.batch for work in experiment.works)
        found = estimate_constants(experiment.task, points, batch=batch, repeats=repeats)
        gradients = found.squared_gradients
        numbers = {name: getattr(found, name) for name in names} | numbers
    return Problem(**numbers), gradients


def _rates(wrapped: Rule[Any], local_lr: float, table: Timetable) -> tuple[str, Rates]:
    """The name of the rule, and its rates with the largest eta_L of all workers."""
    rule = wrapped.innermost
    if isinstance(rule, AfaCs | AfaCd):
        name = "afa-cs" if isinstance(rule, AfaCs) else "afa-cd"
        return name, Rates(server_lr=rule.server_lr, local_lr=local_lr)
    steps = np.unique(table.local_steps)
    if isinstance(rule, FedAvg) and len(steps) == 1 and not rule.by_samples:
        # At constant K, FedAvg is AFA-CD with eta K in place of eta.
        return "fedavg", Rates(server_lr=rule.server_lr * int(steps[0]), local_lr=local_lr)
    raise ConfigError(
        f"The theorems are about AFA-CD and AFA-CS (and FedAvg at constant K, which is AFA-CD), "
        f"the run used {type(rule).__name__}: run one of those."
    )


def _coverage_warnings(rule: Any, others: set[str], local_lrs: set[float]) -> list[str]:
    """Rules, steps and settings of the run that no theorem covers; ``others`` are local rules."""
    found = []
    while rule is not rule.innermost:
        found.append(type(rule).__name__)
        rule = rule.rule
    step = getattr(rule, "step", None)
    if not isinstance(step, SgdStep):
        found.append(type(step).__name__)
    if isinstance(rule, AfaCs):
        found += ["rows that are forgotten"] if rule.expire_after or rule.cap else []
    found += sorted(others)
    warnings = []
    if found:
        warnings.append(
            f"The theorems are about plain SGD at the server and at the workers; the run also has "
            f"{', '.join(found)}, which they do not cover."
        )
    if len(local_lrs) > 1:
        warnings.append(
            "The workers' learning rates differ; the theorems have one eta_L, here the largest."
        )
    return warnings


def _arrival_warnings(rule: str, problem: Problem, memory: Memory, balance: Balance) -> list[str]:
    """Uneven arrivals (AFA-CD: the error ball of Theorem 1) or missing rows (AFA-CS)."""
    if rule != "afa-cs":
        return _uneven(problem.sigma_global, balance) if problem.sigma_global > 0 else []
    if memory.row_age == inf:
        return [
            f"{balance.silent} workers never reported: the delay is unbounded, Theorem 4 does not "
            "apply, and the run optimises the functions of the others, as in Theorem 1."
        ]
    if memory.first > 0:
        return [
            f"Some worker reported for the first time in round {memory.first + 1}: Theorem 4 is "
            f"about the rounds from there on, with f_0 that of version {memory.first}; before "
            "that, the function of some worker is missing."
        ]
    return []


def _uneven(sigma_global: float, balance: Balance) -> list[str]:
    """The bias of shares p_i is sum_i (p_i - 1/M) (grad f_i - grad f), at most skew * sigma_G."""
    advice = "Use AFA-CS, which has none as long as every worker reports now and then."
    if balance.biased:
        return [
            f"Biased arrivals ({100 * balance.share_min:.1f} % to {100 * balance.share_max:.1f} % "
            f"of updates per worker, {balance.silent} silent) with heterogeneous data (sigma_G = "
            f"{sigma_global:.3g}): AFA-CD ends in an error ball at any learning rates (Theorem "
            "1). At these shares small steps leave a squared gradient of up to "
            f"(sum_i |share_i - 1/M| sigma_G)^2 = {(balance.skew * sigma_global) ** 2:.3g}; "
            f"Theorem 2 promises no better than 6 sigma_G^2 = {6 * sigma_global**2:.3g}. {advice}"
        ]
    if balance.shifting:
        return [
            "Who arrives changes with time: the shares are even in the run but not at any time, so "
            "Theorem 3 does not apply. With heterogeneous data (sigma_G = "
            f"{sigma_global:.3g}) AFA-CD follows the workers that are present, with a bias that "
            f"changes with time. {advice}"
        ]
    return []


def _verdict_warnings(verdicts: Sequence[Verdict]) -> list[str]:
    """Broken conditions, terms that a bound leaves out, and delay above the speed-up."""
    warnings = []
    allowed = [verdict for verdict in verdicts if verdict.limits.step > 0]
    if void := [verdict for verdict in allowed if not verdict.holds]:
        which = " and ".join(f"Theorem {verdict.theorem}" for verdict in void)
        warnings.append(
            f"The learning rates are too large for {which}: no bound can be claimed. The "
            "conditions are sufficient, not necessary: the run may still converge."
        )
    warnings += [
        f"Theorem {verdict.theorem} leaves out {LEFT_OUT[verdict.theorem]}: its corrected "
        f"bound is {verdict.bound.corrected:.3g}, not {verdict.bound.total:.3g}."
        for verdict in verdicts
        if verdict.holds and verdict.bound.left_out
    ]
    first = verdicts[0]
    if inf > first.rate["delay"] > first.rate["speed-up"]:
        warnings.append(
            "The delay term is larger than the speed-up term; of the terms that vanish, the "
            f"speed-up is the largest from about {first.rounds_until_speed_up:,.0f} rounds on."
        )
    return warnings
