"""Warnings about a run: what the theorems do not cover, or do not promise."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from anarchic.core.local import Sgd
from anarchic.core.rules import AfaCs
from anarchic.core.steps import SgdStep
from anarchic.sim.experiment import Experiment
from anarchic.theory.numbers import Memory, Problem
from anarchic.theory.observed import Balance
from anarchic.theory.verdict import Verdict

LEFT_OUT = {
    3: "the variance of drawing workers at random",
    4: "that a row adds the same noise to every step along it",
}


def coverage_warnings(experiment: Experiment) -> list[str]:
    """Rules, steps and settings of the run that no theorem covers."""
    rule: Any = experiment.rule
    found = []
    while hasattr(rule, "rule"):
        found.append(type(rule).__name__)
        rule = rule.rule
    step = getattr(rule, "step", None)
    if not isinstance(step, SgdStep):
        found.append(type(step).__name__)
    if isinstance(rule, AfaCs):
        found += ["rows that are forgotten"] if rule.expire_after or rule.cap else []
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
            "The workers' learning rates differ; the theorems have one eta_L, here the largest."
        )
    return warnings


def arrival_warnings(rule: str, problem: Problem, memory: Memory, balance: Balance) -> list[str]:
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


def verdict_warnings(verdicts: Sequence[Verdict]) -> list[str]:
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
        f"Theorem {verdict.theorem} leaves out {LEFT_OUT[verdict.theorem]}: add about "
        f"{verdict.bound.left_out:.3g} to its bound."
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
