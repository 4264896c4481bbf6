"""What the theorems say of given numbers, and of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from anarchic.core.local import Sgd
from anarchic.core.rules import AfaCd, AfaCs, FedAvg
from anarchic.core.steps import SgdStep
from anarchic.core.types import Vector
from anarchic.errors import ConfigError, RunError
from anarchic.participation.timetable import Timetable
from anarchic.sim.experiment import Experiment
from anarchic.sim.record import RunDirectory
from anarchic.sim.settings import Settings, build
from anarchic.theory.bounds import Bound, general_bound, memory_bound, uniform_bound
from anarchic.theory.conditions import (
    Condition,
    Limits,
    general_conditions,
    general_limits,
    memory_conditions,
    memory_limits,
    uniform_conditions,
    uniform_limits,
)
from anarchic.theory.estimate import estimate_constants
from anarchic.theory.numbers import Arrivals, Memory, Problem, Rates
from anarchic.theory.observed import Balance, arrivals_of, balance_of, memory_of
from anarchic.theory.rates import (
    corollary_rates,
    general_rate,
    memory_rate,
    rounds_needed,
    rounds_until_speed_up,
    uniform_rate,
)

PROBLEM = tuple(field.name for field in fields(Problem))
RATES = tuple(field.name for field in fields(Rates))


@dataclass(frozen=True)
class Verdict:
    """One theorem, held against the numbers.

    ``limits`` are the largest learning rates that satisfy the conditions. ``corollary`` are the
    rates of its corollary, for as many rounds and local steps, and ``rate`` the terms it promises
    with them, up to constants; they satisfy the conditions from ``rounds_needed`` rounds on, and
    the speed-up is the largest term from ``rounds_until_speed_up`` on.
    """

    theorem: int
    about: str
    conditions: tuple[Condition, ...]
    bound: Bound
    limits: Limits
    corollary: Rates
    rate: Mapping[str, float]
    rounds_needed: float
    rounds_until_speed_up: float

    @property
    def holds(self) -> bool:
        """Whether all conditions do."""
        return all(condition.holds for condition in self.conditions)


@dataclass(frozen=True)
class Report:
    """The theorems that cover a run, the numbers they were held against, and what to beware of.

    ``squared_gradients`` are estimates of ||grad f||^2 at the points at which the constants were
    estimated, from the first model to the last.
    """

    rule: str
    problem: Problem
    rates: Rates
    arrivals: Arrivals
    memory: Memory
    balance: Balance
    squared_gradients: tuple[float, ...]
    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...]


def judge(
    problem: Problem, rates: Rates, arrivals: Arrivals, memory: Memory
) -> tuple[Verdict, Verdict, Verdict]:
    """Theorems 2, 3 and 4 for given numbers."""
    L, T, m, tau = problem.smoothness, arrivals.rounds, arrivals.m, arrivals.staleness
    K, M = round(arrivals.mean_steps), memory.workers
    kept = max(1, round(memory.sum_steps / M))
    general, uniform = general_limits(L, arrivals), uniform_limits(L, arrivals)
    remembered = memory_limits(L, memory)
    uniformly = uniform_rate(rounds=T, m=m, local_steps=K, staleness=tau)
    sigma = problem.sigma_global
    return (
        Verdict(
            2,
            "AFA-CD, arrivals of any kind",
            general_conditions(L, rates, arrivals),
            general_bound(problem, rates, arrivals),
            general,
            corollary_rates(rounds=T, n=m, local_steps=K),
            general_rate(rounds=T, m=m, local_steps=K, staleness=tau, sigma_global=sigma),
            rounds_needed(general, n=m, local_steps=K),
            rounds_until_speed_up(n=m, local_steps=K, delay=tau),
        ),
        Verdict(
            3,
            "AFA-CD, workers equally likely to arrive",
            uniform_conditions(L, rates, arrivals),
            uniform_bound(problem, rates, arrivals),
            uniform,
            corollary_rates(rounds=T, n=m, local_steps=K),
            uniformly,
            rounds_needed(uniform, n=m, local_steps=K),
            rounds_until_speed_up(n=m, local_steps=K, delay=tau),
        ),
        Verdict(
            4,
            "AFA-CS, arrivals of any kind",
            memory_conditions(L, rates, memory),
            memory_bound(problem, rates, memory),
            remembered,
            corollary_rates(rounds=memory.rounds, n=M, local_steps=kept),
            memory_rate(
                rounds=memory.rounds,
                workers=M,
                local_steps=kept,
                row_age=memory.row_age,
                fresh=memory.fresh,
            ),
            rounds_needed(remembered, n=M, local_steps=kept),
            rounds_until_speed_up(n=M, local_steps=kept, delay=memory.delay),
        ),
    )


def judge_experiment(
    experiment: Experiment,
    points: Sequence[Vector],
    *,
    known: Mapping[str, float] | None = None,
    repeats: int = 16,
) -> Report:
    """The theorems that cover an experiment, its constants estimated at ``points``.

    ``known`` replaces estimates (``smoothness``, ``sigma_local``, ``sigma_global``, ``gap``) and
    learning rates (``server_lr``, ``local_lr``) by numbers that are known, or tried out. Without a
    known ``gap`` it is the loss of the first model, as evaluated: a loss is at least 0.
    """
    known = dict(known or {})
    if strange := sorted(known.keys() - {*PROBLEM, *RATES}):
        raise ConfigError(
            f"The theorems know no {', '.join(strange)}; there are {', '.join(PROBLEM + RATES)}."
        )
    table = experiment.timetable
    rule, rates = _rates(experiment)
    rates = replace(rates, **{name: known[name] for name in RATES if name in known})
    problem, gradients = _problem(experiment, points, known, repeats)
    arrivals, memory, balance = arrivals_of(table), memory_of(table), balance_of(table)
    general, uniform, remembered = judge(problem, rates, arrivals, memory)
    if rule == "afa-cs":
        covering: tuple[Verdict, ...] = (remembered,)
    else:
        covering = (general,) if balance.biased else (general, uniform)
    warnings = [
        *_uncovered(experiment),
        *_about_arrivals(rule, problem, arrivals, memory, balance, general),
        *_about_verdicts(covering),
    ]
    return Report(
        rule,
        problem,
        rates,
        arrivals,
        memory,
        balance,
        gradients,
        covering,
        tuple(warnings),
    )


def judge_run(
    path: str | Path,
    *,
    known: Mapping[str, float] | None = None,
    points: int = 3,
    repeats: int = 16,
    device: str = "cpu",
) -> Report:
    """The theorems that cover a recorded run.

    Its data are loaded and dealt again; its constants are estimated at ``points`` points on the
    line from its first model to its last, or at the first alone where it has not finished.
    """
    if points < 1:
        raise ConfigError(f"The constants are estimated at points, at least one, got {points}.")
    record = RunDirectory(Path(path))
    settings = {name: value for name, value in record.settings().items() if name != "trace"}
    experiment = build(replace(Settings.from_record(settings), device=device))
    table = _so_far(record)
    experiment = replace(experiment, timetable=table)
    first = experiment.task.init()
    last = record.model(experiment.task.layout) if record.finished else first
    shares = np.linspace(0, 1, points if record.finished else 1)
    line = [(first + share * (last - first)).astype(first.dtype) for share in shares]
    report = judge_experiment(experiment, line, known=known, repeats=repeats)
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
    if "gap" not in numbers:
        numbers["gap"] = experiment.task.evaluate(experiment.task.init())["loss"]
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


def _uncovered(experiment: Experiment) -> list[str]:
    """What the run has that the theorems do not."""
    rule, found = experiment.rule, []
    while hasattr(rule, "rule"):
        found.append(type(rule).__name__)
        rule = rule.rule
    step = getattr(rule, "step", None)
    if not isinstance(step, SgdStep):
        found.append(type(step).__name__)
    found += sorted(
        {type(w.rule).__name__ for w in experiment.works if not isinstance(w.rule, Sgd)}
    )
    warnings = []
    if found:
        warnings.append(
            f"The theorems are about plain SGD at the server and at the workers; the run also has "
            f"{', '.join(found)}, which they do not cover."
        )
    if len({work.lr for work in experiment.works}) > 1:
        warnings.append(
            "The workers' learning rates differ; the theorems know one eta_L, here the largest."
        )
    return warnings


def _about_arrivals(
    rule: str,
    problem: Problem,
    arrivals: Arrivals,
    memory: Memory,
    balance: Balance,
    general: Verdict,
) -> list[str]:
    warnings = []
    if rule != "afa-cs" and balance.biased and problem.sigma_global > 0:
        warnings.append(
            f"Biased arrivals (shares of {balance.share_min:.1%} to {balance.share_max:.1%}, "
            f"{balance.silent} silent) with heterogeneous data (sigma_G = "
            f"{problem.sigma_global:.3g}): AFA-CD converges to an error ball, up to 6 sigma_G^2 = "
            f"{general.bound.floor:.3g}, whatever the learning rates (Theorems 1 and 2). Use "
            "AFA-CS, which has none as long as everybody reports now and then."
        )
    if rule == "afa-cs" and memory.row_age == inf:
        warnings.append(
            f"{balance.silent} workers never reported: the delay is unbounded, Theorem 4 says "
            "nothing, and the run optimises the others' functions, as in Theorem 1."
        )
    elif rule == "afa-cs" and memory.first > 0:
        warnings.append(
            f"Some worker reported for the first time in round {memory.first + 1}: Theorem 4 is "
            "about the rounds from there on; before, the silent counted as zero."
        )
    return warnings


def _about_verdicts(verdicts: Sequence[Verdict]) -> list[str]:
    warnings = []
    for verdict in verdicts:
        name = f"Theorem {verdict.theorem}"
        broken = [condition.name for condition in verdict.conditions if not condition.holds]
        if broken:
            warnings.append(
                f"{name} does not apply at these learning rates: {', '.join(broken)} broken. Its "
                "conditions are sufficient, not necessary; the run may be fine all the same."
            )
        if verdict.bound.left_out:
            warnings.append(
                f"{name} leaves out the chance in who is drawn: add about "
                f"{verdict.bound.left_out:.3g} to its bound."
            )
        if verdict.rate["delay"] > verdict.rate["speed-up"]:
            warnings.append(
                f"{name}: delay weighs more than what more workers gain; its speed-up shows from "
                f"about {verdict.rounds_until_speed_up:,.0f} rounds on."
            )
    return warnings
