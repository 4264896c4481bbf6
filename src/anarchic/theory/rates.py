"""The corollaries: learning rates that give linear speed-up, and the rates of convergence.

All three set eta_L = 1/sqrt(T) and eta = sqrt(n K), with n the number of updates in a step: m for
AFA-CD, M for AFA-CS, whose step is a mean over all rows. The server steps by eta * eta_L * mean(G),
as in the proofs, so that the step is sqrt(n K / T).

A rate is given as its terms without the constants of O( ), which ``anarchic.theory.bounds`` has.
"""

from __future__ import annotations

from math import floor, inf, isfinite, sqrt

from anarchic.errors import ConfigError
from anarchic.theory.conditions import RateLimits
from anarchic.theory.numbers import Rates


def corollary_rates(*, rounds: int, n: int, local_steps: int) -> Rates:
    """eta_L = 1/sqrt(T) and eta = sqrt(n K); n is m for AFA-CD and M for AFA-CS.

    Reference: the corollaries of Theorems 2, 3 and 4. Departs from them in: nothing.

    >>> rates = corollary_rates(rounds=100, n=5, local_steps=5)
    >>> rates.server_lr, rates.local_lr
    (5.0, 0.1)
    """
    _at_least_one(rounds=rounds, n=n, local_steps=local_steps)
    return Rates(server_lr=sqrt(n * local_steps), local_lr=1 / sqrt(rounds))


def general_rate(
    *, rounds: int, m: int, local_steps: int, staleness: int, sigma_global: float
) -> dict[str, float]:
    """Corollary of Theorem 2: 1/sqrt(m K T) + tau^2/T + K^2/T + sigma_G^2."""
    return uniform_rate(rounds=rounds, m=m, local_steps=local_steps, staleness=staleness) | {
        "error ball": sigma_global**2
    }


def uniform_rate(*, rounds: int, m: int, local_steps: int, staleness: int) -> dict[str, float]:
    """Corollary of Theorem 3: 1/sqrt(m K T) + tau^2/T + K^2/T."""
    _at_least_one(rounds=rounds, m=m, local_steps=local_steps)
    T, K = rounds, local_steps
    return {"speed-up": 1 / sqrt(m * K * T), "delay": staleness**2 / T, "drift": K**2 / T}


def memory_rate(
    *, rounds: int, workers: int, local_steps: int, row_age: float, fresh: int
) -> dict[str, float]:
    """Corollary of Theorem 4: 1/sqrt(M K T) + K^2/T + tau^2 (M - m')^2 / (T M^2).

    Departs from the text in: it prints K^2/(M T). That follows from means over the workers; with
    the sums of the proof, K-hat^2 = M K^2, alpha_G = 120 L^2 eta_L^2 K^2 has no 1/M left.
    """
    _at_least_one(rounds=rounds, workers=workers, local_steps=local_steps)
    T, K, M = rounds, local_steps, workers
    late = row_age * (M - fresh) / M if fresh < M else 0.0
    return {"speed-up": 1 / sqrt(M * K * T), "delay": late**2 / T, "drift": K**2 / T}


def rounds_needed(limits: RateLimits, *, n: int, local_steps: int) -> float:
    """The least T at which the corollaries' rates satisfy the conditions of a theorem.

    1/sqrt(T) < ``limits.local_lr`` and sqrt(n K / T) <= ``limits.step``; infinite where no rates
    satisfy them. ``floor(T) + 1``, to be safe against rounding.
    """
    if not limits.local_lr > 0 or not limits.step > 0:
        return inf
    return floor(max(limits.local_lr**-2, n * local_steps * limits.step**-2)) + 1


def rounds_until_speed_up(*, n: int, local_steps: int, delay: float) -> float:
    """The least T at which 1/sqrt(n K T) is the largest of the terms that vanish.

    tau^2/T <= 1/sqrt(n K T) from T = n K tau^4 on, K^2/T from T = n K^5 on. ``delay`` is tau for
    AFA-CD, tau (M - m') / M for AFA-CS. Reference: the remark after the corollary of Theorem 3.
    Departs from it in: its second bound, sqrt(T) / (sqrt(m) K^(5/2)), is printed as one on tau; it
    is one on 1, since tau is not in that term.
    """
    if not isfinite(delay):
        return inf
    return n * local_steps * max(delay**4, float(local_steps**4))


def _at_least_one(**numbers: int) -> None:
    for name, value in numbers.items():
        if not value >= 1:
            raise ConfigError(f"The corollaries need {name} >= 1, got {name}={value}.")
