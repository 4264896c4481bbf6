"""Theorem 1: arrivals that no algorithm can learn from, and how large the error then is.

Two workers have f_1(x) = (x + G)^2 and f_2(x) = (x - G)^2, so f(x) = x^2 + G^2 and
||grad f_i - grad f||^2 = 4 G^2 = sigma_G^2, everywhere. Where only the first worker reports, an
algorithm that converges goes to -G, and ||grad f(-G)||^2 = sigma_G^2: the error is of the order of
sigma_G^2, and no setting of the server or the workers changes that.

Reference: Yang et al. 2022, Theorem 1 and its proof. Departs from it in: arrivals in any
proportion beside those of the first worker alone, for which the error is known as well.
"""

from __future__ import annotations

import numpy as np

from anarchic.data.quadratics import Floats, Quadratics
from anarchic.errors import ConfigError
from anarchic.participation.sampler import Sampler
from anarchic.participation.timetable import Timetable
from anarchic.participation.work import ConstantSteps
from anarchic.theory.numbers import Rates, at_least_one_step

SMOOTHNESS = 2.0  # L of both functions


def worst_case(sigma_global: float, noise: float = 0.0) -> Quadratics:
    """The two functions of Theorem 1; G = sigma_G / 2.

    >>> float(worst_case(1.0).gradient(np.array([0.0]), worker=0)[0])  # 2 (x + G)
    1.0
    """
    if not 0 < sigma_global < float("inf"):
        raise ConfigError(f"Theorem 1 needs a finite sigma_G above 0, got {sigma_global}.")
    G = sigma_global / 2
    return Quadratics(np.full((2, 1), SMOOTHNESS), np.array([[-G], [G]]), noise)


def arrivals_of_one(
    rounds: int, *, share: float = 1.0, m: int = 1, local_steps: int = 1, seed: int = 0
) -> Timetable:
    """Rounds of ``m`` updates, each with probability ``share`` by the first worker.

    1 is the worst case of Theorem 1: the second worker never reports.
    """
    _check_share(share)
    steps, shares = ConstantSteps(local_steps), (share, 1 - share)
    return Sampler(2, m, steps, replace=True, probabilities=shares).timetable(seed, rounds)


def pull(rates: Rates, local_steps: int) -> float:
    """How far one step of AFA-CD goes towards the mean of the reporting workers' optima.

    K local steps from x give the direction (x - x_i*) (1 - (1 - 2 eta_L)^K) / (K eta_L), so the
    server goes the share eta (1 - (1 - 2 eta_L)^K) / K of the way; for K = 1 that is 2 eta eta_L.
    Where only the first worker reports and gradients are exact, x_t + G = (x_0 + G) (1 - pull)^t.
    """
    K = at_least_one_step(local_steps)
    return rates.server_lr * (1 - (1 - 2 * rates.local_lr) ** K) / K


def squared_gradient(x: float | Floats) -> Floats:
    """||grad f(x)||^2 = 4 x^2."""
    return 4 * np.asarray(x, np.float64) ** 2


def error_ball(sigma_global: float, *, share: float = 1.0, step: float = 0.0, m: int = 1) -> float:
    """E ||grad f(x_t)||^2 of AFA-CD in the long run, with exact gradients and without delay.

    (2 p - 1)^2 sigma_G^2 + step / (2 - step) 4 p (1 - p) sigma_G^2 / m, where p is ``share``, the
    probability that an update is the first worker's, and ``step`` is ``pull(rates, K)``. The first
    part is the bias, sigma_G^2 in the worst case of Theorem 1 and 0 where both are equally likely;
    the second comes of drawing workers at random, and vanishes with the step. AFA-CS, which
    remembers both, has neither once both have reported.

    >>> error_ball(3.0)  # Theorem 1: sigma_G^2
    9.0
    """
    _check_share(share)
    if not 0 <= step < 2:
        raise ConfigError(f"AFA-CD diverges unless 0 <= step < 2, got step={step}.")
    if not m >= 1:
        raise ConfigError(f"A round has at least one update, got m={m}.")
    bias, spread = (2 * share - 1) ** 2, 4 * share * (1 - share) / m
    return float((bias + step / (2 - step) * spread) * sigma_global**2)


def _check_share(share: float) -> None:
    if not 0 <= share <= 1:
        raise ConfigError(f"The share of the first worker is a probability, got {share}.")
