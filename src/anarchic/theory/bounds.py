"""The right-hand sides of Theorems 2, 3 and 4: how large the mean squared gradient can be.

Each bounds (1/T) sum_t E ||grad f(x_t)||^2 over the versions 0 .. T - 1, provided that its
conditions hold (``anarchic.theory.conditions``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anarchic.theory.numbers import Arrivals, Memory, Problem, Rates

Terms = Mapping[str, float]


@dataclass(frozen=True)
class Bound:
    """A right-hand side, term by term.

    ``start`` is what is left of f(x_0) - f_*, ``noise`` what sigma_L adds, ``heterogeneity`` what
    sigma_G adds; ``alpha_local`` and ``alpha_global`` are alpha_L and alpha_G as the theorem has
    them, in parts. ``floor`` is the part of ``heterogeneity`` that neither time nor rates remove.
    ``left_out`` is a term that the theorem lacks and needs, to leading order in the step. ``total``
    is the right-hand side as printed, ``corrected`` has that term too.
    """

    theorem: int
    start: float
    noise: float
    heterogeneity: float
    alpha_local: Terms
    alpha_global: Terms
    floor: float = 0.0
    left_out: float = 0.0

    @property
    def total(self) -> float:
        return self.start + self.noise + self.heterogeneity

    @property
    def corrected(self) -> float:
        return self.total + self.left_out


def general_bound(problem: Problem, rates: Rates, arrivals: Arrivals) -> Bound:
    """Theorem 2, AFA-CD with arrivals of any kind.

    4 (f_0 - f_*) / (eta eta_L T) + 4 (alpha_L sigma_L^2 + alpha_G sigma_G^2), where

        alpha_L = (L eta eta_L + 3 tau^2 L^2 eta^2 eta_L^2) (1/K) / m + 15/2 eta_L^2 L^2 K-bar
        alpha_G = 3/2 + 45 L^2 eta_L^2 K-hat^2

    with means over the rounds of 1/K_t, K-bar_t and K-hat_t^2. The 3/2 is the error ball of
    Theorem 1: it stays. Departs from the paper in: nothing.

    >>> from anarchic.theory import Arrivals, Problem, Rates, general_bound
    >>> problem = Problem(smoothness=1, sigma_local=0, sigma_global=1, gap=1)
    >>> arrivals = Arrivals.steady(workers=10, m=5, rounds=100)
    >>> general_bound(problem, Rates(server_lr=10, local_lr=0.01), arrivals).floor
    6.0
    """
    y, drift = _step_and_drift(problem, rates)
    each = arrivals.inverse_steps / arrivals.m
    local = {
        "step": y * each,
        "delay": 3 * arrivals.staleness**2 * y**2 * each,
        "drift": 7.5 * drift * arrivals.mean_steps,
    }
    share = {"arrivals": 1.5, "drift": 45 * drift * arrivals.square_steps}
    floor = 4 * share["arrivals"] * problem.sigma_global**2
    return _bound(2, problem, rates, arrivals.rounds, local, share, floor=floor)


def uniform_bound(problem: Problem, rates: Rates, arrivals: Arrivals) -> Bound:
    """Theorem 3, AFA-CD with workers that arrive uniformly at random.

    4 (f_0 - f_*) / (eta eta_L T) + 4 (alpha_L sigma_L^2 + alpha_G sigma_G^2), where

        alpha_L = (L eta eta_L + 2 tau^2 L^2 eta^2 eta_L^2) (1/K) / m + 5 eta_L^2 L^2 K-bar
        alpha_G = 30 L^2 eta_L^2 K-hat^2

    Departs from the paper in: nothing. The theorem is false as printed; ``left_out`` holds the
    missing term, see ``sampling_variance``.
    """
    y, drift = _step_and_drift(problem, rates)
    each = arrivals.inverse_steps / arrivals.m
    local = {
        "step": y * each,
        "delay": 2 * arrivals.staleness**2 * y**2 * each,
        "drift": 5 * drift * arrivals.mean_steps,
    }
    share = {"drift": 30 * drift * arrivals.square_steps}
    left_out = sampling_variance(problem, rates, arrivals)
    return _bound(3, problem, rates, arrivals.rounds, local, share, left_out=left_out)


def memory_bound(problem: Problem, rates: Rates, memory: Memory) -> Bound:
    """Theorem 4, AFA-CS with arrivals of any kind.

    4 (f(x_0) - f(x_T)) / (eta eta_L T) + alpha_L sigma_L^2 + alpha_G sigma_G^2, where

        alpha_L = (4/M) [5 L^2 eta_L^2 K-bar
                         + (2 eta^2 eta_L^2 (M - m')^2 L^2 tau^2 / M^2 + L eta eta_L) (1/K)]
        alpha_G = (120 L^2 eta_L^2 / M) K-hat^2

    with K-bar_t and K-hat_t^2 *sums* over the M rows, as the proof defines them, and tau and m' of
    the rows in memory, see ``Memory``. Departs from the text in: it prints 4 f(x_0) - f(x_T), the
    proof gives 4 (f(x_0) - f(x_T)); it inherits the means of Theorem 2 for K-bar and K-hat^2. f_*
    in place of f(x_T) makes the bound larger, so ``Problem.gap`` serves here too; its x_0 is the
    version ``memory.first``.

    A step of the proof fails where m < M; ``left_out`` holds the missing term, see
    ``reused_noise``.
    Where the proof writes grad f(x) - Delta_i, it means grad f_i.
    """
    y, drift = _step_and_drift(problem, rates)
    M = memory.workers
    delay = 2 * memory.delay**2 * y**2 * memory.inverse_steps if memory.delay else 0.0
    local = {"step": 4 / M * y * memory.inverse_steps, "delay": 4 / M * delay}
    local["drift"] = 20 / M * drift * memory.sum_steps
    share = {"drift": 120 / M * drift * memory.sum_square_steps}
    left_out = reused_noise(problem, rates, memory)
    return _bound(4, problem, rates, memory.rounds, local, share, left_out=left_out)


def sampling_variance(problem: Problem, rates: Rates, arrivals: Arrivals) -> float:
    """What Theorem 3 leaves out: the variance of drawing m of the M workers.

    The mean gradient of m workers, drawn without replacement, has the variance
    (M - m) / (m (M - 1)) * sigma_G^2 about that of all M. The proof loses it: after (b12) it bounds
    sum_{i != j} ||z_i - z_j||^2 by 2 (M - 1) sum_i ||z_i||^2, which is false where sum_i z_i = 0,
    that is near every stationary point. With the correct 2 M in place of 2 (M - 1) nothing in the
    bound covers the variance. Correctly, E ||mean z||^2 of the sample is that of all, plus the
    variance, whose ||z_i - grad f||^2 is bounded as A_3 is in Theorem 2; to leading order

        12 (L eta eta_L + 2 tau^2 L^2 eta^2 eta_L^2) (M - m) / (m (M - 1)) sigma_G^2

    must be added to the right-hand side. It vanishes with the step, as the noise of sigma_L does,
    so the rate of the corollary stands; it is 0 at m = M. On the functions of Theorem 1 with either
    worker equally likely the error is known in closed form (``lower_bound.error_ball``) and lies
    above Theorem 3's bound once eta_L is small and eta * eta_L is not.
    """
    M, m = arrivals.workers, arrivals.m
    if m >= M:
        return 0.0
    y = problem.smoothness * rates.step
    paid = y + 2 * arrivals.staleness**2 * y**2
    return 12 * paid * (M - m) / (m * (M - 1)) * problem.sigma_global**2


def reused_noise(problem: Problem, rates: Rates, memory: Memory) -> float:
    """What Theorem 4 leaves out: the noise of a row is in the model already when it is used again.

    Its A_1 takes E <grad f(x_t), G_i> for <grad f(x_t), Delta_i>. But x_t has taken a_i steps along
    the row, so it contains -(eta eta_L / M) a_i (G_i - Delta_i), and grad f(x_t) at most L times
    that; to leading order in the step

        4 (L eta eta_L / M) mean_t (1/M) sum_i a_{t,i} / K_{t,i} sigma_L^2

    must be added to the right-hand side. The mean of a is M/m - 1 where workers arrive at random
    and half of that where they take turns: the noise is then that of m updates per round, not of
    M. It is 0 where every worker reports in every round. On quadratics of equal curvature the noise
    settles at L eta eta_L (1 + 2 a) sigma_L^2 / (2 M K). Runs with M/m of 12 and more were above
    the bound as printed, runs with 8 and less below; all were below the corrected one (experiment
    ``speed-up``).
    """
    y = problem.smoothness * rates.step
    return _times(4 * y / memory.workers * memory.reuse, problem.sigma_local**2)


def _step_and_drift(problem: Problem, rates: Rates) -> tuple[float, float]:
    """L eta eta_L and L^2 eta_L^2."""
    return problem.smoothness * rates.step, (problem.smoothness * rates.local_lr) ** 2


def _bound(
    theorem: int, problem: Problem, rates: Rates, T: int, local: Terms, share: Terms, **more: float
) -> Bound:
    factor = 1 if theorem == 4 else 4  # the alphas of Theorem 4 contain it
    start = 4 * problem.gap / (rates.step * T)
    noise = factor * _times(sum(local.values()), problem.sigma_local**2)
    heterogeneity = factor * _times(sum(share.values()), problem.sigma_global**2)
    return Bound(theorem, start, noise, heterogeneity, local, share, **more)


def _times(alpha: float, variance: float) -> float:
    """alpha * variance; 0 if the variance is 0, also for an infinite alpha (inf * 0 is nan)."""
    return alpha * variance if variance else 0.0
