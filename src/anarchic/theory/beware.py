"""What the theory warns about, in words."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from anarchic.core.local import Sgd
from anarchic.core.steps import SgdStep
from anarchic.sim.experiment import Experiment
from anarchic.theory.numbers import Memory, Problem
from anarchic.theory.observed import Balance
from anarchic.theory.verdict import Verdict

LEFT_OUT = {
    3: "the chance in who is drawn",
    4: "that a row brings the same noise to every step along it",
}


def uncovered(experiment: Experiment) -> list[str]:
    """What the run has that the theorems do not."""
    rule: Any = experiment.rule
    found = []
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


def about_arrivals(rule: str, problem: Problem, memory: Memory, balance: Balance) -> list[str]:
    """Who arrives, and what that means for the rule: Theorem 1's error ball, or a memory's gaps."""
    warnings = []
    if rule != "afa-cs" and balance.biased and problem.sigma_global > 0:
        warnings.append(
            f"Biased arrivals (shares of {balance.share_min:.1%} to {balance.share_max:.1%}, "
            f"{balance.silent} silent) with heterogeneous data (sigma_G = "
            f"{problem.sigma_global:.3g}): AFA-CD ends in an error ball, of up to 6 sigma_G^2 = "
            f"{6 * problem.sigma_global**2:.3g}, whatever the learning rates (Theorems 1 and 2). "
            "Use AFA-CS, which has none as long as everybody reports now and then."
        )
    if rule == "afa-cs" and memory.row_age == inf:
        warnings.append(
            f"{balance.silent} workers never reported: the delay is unbounded, Theorem 4 says "
            "nothing, and the run optimises the others' functions, as in Theorem 1."
        )
    elif rule == "afa-cs" and memory.first > 0:
        warnings.append(
            f"Some worker reported for the first time in round {memory.first + 1}: Theorem 4 is "
            f"about the rounds from there on, with f_0 that of version {memory.first}; before, the "
            "silent counted as zero."
        )
    return warnings


def about_verdicts(verdicts: Sequence[Verdict]) -> list[str]:
    """Conditions that are broken, terms that are missing, delay that weighs."""
    warnings = []
    if void := [verdict for verdict in verdicts if not verdict.holds]:
        which = " and ".join(f"Theorem {verdict.theorem}" for verdict in void)
        warnings.append(
            f"The learning rates are too large for {which}: no bound can be claimed. The "
            "conditions are sufficient, not necessary, so the run may be fine all the same."
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
            "Delay weighs more than what more workers gain; the speed-up is the largest term from "
            f"about {first.rounds_until_speed_up:,.0f} rounds on."
        )
    return warnings
