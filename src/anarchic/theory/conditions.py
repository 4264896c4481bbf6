"""The conditions on learning rates under which Theorems 2, 3 and 4 hold, and the largest rates.

Each theorem has three:

- *drift* keeps the local steps near the model they start from, (a11) in the proof of Theorem 2;
- *gradient* keeps what they drift below the gradient itself, (a13), (b13) and (c5);
- *step* keeps the server's step, with delay, from overshooting, (a13), after (b12), and (c4).

Departs from the paper in two points; ``Condition.printed`` has what the paper prints.

The *gradient* conditions have tau as a factor, so they are empty at tau = 0. The step of the proof
that uses them needs a bound then too, since every round meets its own gradient once. They have
max(tau, 1) here. (Strictly, a version is met in up to tau + 1 rounds; from 1 on the paper's tau is
kept.)

The *step* condition of Theorem 3 is printed with tau^2 where the line before, (b9), has 2 tau^2.
It has 2 tau^2 here, which implies the printed one and equals it at tau = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt

from anarchic.errors import ConfigError
from anarchic.theory.numbers import Arrivals, Memory, Rates


@dataclass(frozen=True)
class Condition:
    """An inequality ``value <= limit`` (``<`` where ``strict``) between numbers of a run.

    ``printed`` is what the paper has in its place, where the condition is a correction.
    """

    name: str
    formula: str
    value: float
    limit: float
    strict: bool = False
    printed: Condition | None = None

    @property
    def holds(self) -> bool:
        return self.value < self.limit if self.strict else self.value <= self.limit

    @property
    def margin(self) -> float:
        """The part of the limit that is left; below 0 if the condition is broken."""
        return 1 - self.value / self.limit

    @property
    def disputed(self) -> bool:
        """Whether the printed condition gives the opposite answer."""
        return self.printed is not None and self.printed.holds != self.holds


Conditions = tuple[Condition, Condition, Condition]


@dataclass(frozen=True)
class RateLimits:
    """The largest learning rates that a theorem allows.

    Its conditions hold where eta_L is below ``local_lr`` and eta * eta_L is at most ``step``.
    """

    local_lr: float
    step: float

    def rates(self, share: float = 0.99) -> Rates:
        """Rates just within the limits; raises ConfigError if there are none."""
        if not self.step > 0 or not self.local_lr > 0:
            raise ConfigError(
                "No learning rates satisfy the conditions: the delay is unbounded, because some "
                "worker never reported."
            )
        local_lr = share * self.local_lr
        return Rates(server_lr=share * self.step / local_lr, local_lr=local_lr)


def general_conditions(smoothness: float, rates: Rates, arrivals: Arrivals) -> Conditions:
    """Theorem 2, AFA-CD with arrivals of any kind.

    6 eta_L^2 (2 K^2 - 3 K + 1) L^2 <= 1 and 180 eta_L^2 K^2 L^2 max(tau, 1) < 1 for every K, and
    2 L eta eta_L + 6 tau^2 L^2 eta^2 eta_L^2 <= 1. (Equation (a12) of the proof prints half of the
    last term; the inequality needs all of it, as in the theorem.)
    """
    L, tau, K, eta_L = smoothness, arrivals.staleness, arrivals.steps_max, rates.local_lr
    y = L * rates.step
    formula = "2 L eta eta_L + 6 tau^2 L^2 eta^2 eta_L^2 <= 1"
    return (
        _drift(L, eta_L, K),
        _gradient("180 eta_L^2 K^2 L^2 {tau} < 1", 180 * eta_L**2 * K**2 * L**2, tau, 1.0),
        Condition("step", formula, 2 * y + 6 * tau**2 * y**2, 1.0),
    )


def uniform_conditions(smoothness: float, rates: Rates, arrivals: Arrivals) -> Conditions:
    """Theorem 3, AFA-CD with workers that arrive uniformly at random.

    *drift* as in Theorem 2; 120 L^2 K-hat_t^2 eta_L^2 max(tau, 1) < 1 for every round; and
    L eta eta_L + 2 L^2 eta^2 eta_L^2 tau^2 <= 1 / (2 M), printed without the 2 (see above).
    """
    L, tau, squares = smoothness, arrivals.staleness, arrivals.worst_square_steps
    y, limit, eta_L = L * rates.step, 1 / (2 * arrivals.workers), rates.local_lr
    formula = "L eta eta_L + {}L^2 eta^2 eta_L^2 tau^2 <= 1/(2M)"
    printed = Condition("step", formula.format(""), y + tau**2 * y**2, limit)
    step = y + 2 * tau**2 * y**2
    return (
        _drift(L, eta_L, arrivals.steps_max),
        _gradient("120 L^2 K-hat^2 eta_L^2 {tau} < 1", 120 * L**2 * squares * eta_L**2, tau, 1.0),
        Condition("step", formula.format("2 "), step, limit, printed=printed),
    )


def memory_conditions(smoothness: float, rates: Rates, memory: Memory) -> Conditions:
    """Theorem 4, AFA-CS with arrivals of any kind.

    *drift* as in Theorem 2; (30 L^2 eta_L^2 max(tau, 1) / M) sum_i K_{t,i}^2 <= 1/4 for every
    round; and (eta eta_L (M - m')^2 L^2 tau^2 / M^2 + L/2) eta eta_L <= 1/4. tau is the age of a
    row and m' the number of rows without delay, see ``Memory``.
    """
    L, M, tau, eta_L = smoothness, memory.workers, memory.row_age, rates.local_lr
    y, squares = L * rates.step, memory.worst_sum_square_steps / M
    gradient = "30 L^2 eta_L^2 {tau} (sum_i K_i^2) / M <= 1/4"
    step = "(eta eta_L (M - m')^2 L^2 tau^2 / M^2 + L/2) eta eta_L <= 1/4"
    return (
        _drift(L, eta_L, memory.steps_max),
        _gradient(gradient, 30 * L**2 * eta_L**2 * squares, tau, 1 / 4),
        Condition("step", step, memory.delay**2 * y**2 + y / 2, 1 / 4),
    )


def general_limits(smoothness: float, arrivals: Arrivals) -> RateLimits:
    """The largest rates of Theorem 2: its conditions, solved for eta_L and for eta * eta_L.

    *gradient* implies *drift*: 6 (2 K^2 - 3 K + 1) lies below 12 K^2. In the other theorems it may
    not, since there it takes a mean of K^2 and *drift* the largest.
    """
    L, tau, K = smoothness, arrivals.staleness, arrivals.steps_max
    return RateLimits(1 / (L * K * sqrt(180 * max(tau, 1))), _largest(6 * tau**2, 2, 1) / L)


def uniform_limits(smoothness: float, arrivals: Arrivals) -> RateLimits:
    """The largest rates of Theorem 3."""
    L, tau = smoothness, arrivals.staleness
    local = 1 / (L * sqrt(120 * arrivals.worst_square_steps * max(tau, 1)))
    step = _largest(2 * tau**2, 1, 1 / (2 * arrivals.workers)) / L
    return RateLimits(min(_drift_limit(L, arrivals.steps_max), local), step)


def memory_limits(smoothness: float, memory: Memory) -> RateLimits:
    """The largest rates of Theorem 4; both are 0 where a worker never reported."""
    L, squares = smoothness, memory.worst_sum_square_steps / memory.workers
    local = 1 / (L * sqrt(120 * squares * max(memory.row_age, 1)))
    step = _largest(memory.delay**2, 1 / 2, 1 / 4) / L
    return RateLimits(min(_drift_limit(L, memory.steps_max), local), step)


def _drift(smoothness: float, local_lr: float, steps: int) -> Condition:
    # 2 K^2 - 3 K + 1 grows with K from K = 1 on, so the largest K is enough.
    value = 6 * local_lr**2 * (2 * steps**2 - 3 * steps + 1) * smoothness**2
    return Condition("drift", "6 eta_L^2 (2K^2 - 3K + 1) L^2 <= 1", value, 1.0)


def _gradient(formula: str, factor: float, tau: float, limit: float) -> Condition:
    strict = " < " in formula
    printed = Condition("gradient", formula.format(tau="tau"), factor * tau, limit, strict)
    corrected = formula.format(tau="max(tau, 1)")
    return Condition("gradient", corrected, factor * max(tau, 1), limit, strict, printed)


def _drift_limit(smoothness: float, steps: int) -> float:
    spread = 2 * steps**2 - 3 * steps + 1
    return 1 / (smoothness * sqrt(6 * spread)) if spread else inf


def _largest(a: float, b: float, c: float) -> float:
    """The largest y with ``a y^2 + b y <= c``, in a form that also holds at a = 0."""
    return 2 * c / (b + sqrt(b**2 + 4 * a * c))
