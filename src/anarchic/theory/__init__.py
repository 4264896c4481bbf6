"""The paper's theorems as functions: conditions, bounds, rates, and the numbers that they take.

`judge` applies the theorems to given numbers (`calculate`) or to a recorded run.

`Problem`, `Rates`, `Arrivals` and `Memory` hold the numbers, given or estimated
(`estimate_constants`, `arrivals_of`, `memory_of`); `steps_of` and `balance_of` count local steps
and arrivals per worker. `general_*` is Theorem 2, `uniform_*` Theorem 3, `memory_*` Theorem 4,
`lower_bound` the construction of Theorem 1. `measure` and `weights_of` compute a run again and
measure what the theorems speak of.
"""

from anarchic.theory import lower_bound
from anarchic.theory.bounds import (
    Bound,
    general_bound,
    memory_bound,
    reused_noise,
    sampling_variance,
    uniform_bound,
)
from anarchic.theory.conditions import (
    Condition,
    RateLimits,
    general_conditions,
    general_limits,
    memory_conditions,
    memory_limits,
    uniform_conditions,
    uniform_limits,
)
from anarchic.theory.estimate import estimate_constants
from anarchic.theory.measured import Measured, Weights, measure, weights_of
from anarchic.theory.numbers import Arrivals, KnownNumbers, Memory, Problem, Rates
from anarchic.theory.observed import (
    Balance,
    StepsTaken,
    arrivals_of,
    balance_of,
    memory_of,
    steps_of,
)
from anarchic.theory.rates import (
    corollary_rates,
    general_rate,
    memory_rate,
    rounds_needed,
    rounds_until_speed_up,
    uniform_rate,
)
from anarchic.theory.report import Report, as_dict, judge, judge_experiment
from anarchic.theory.verdict import (
    Calculation,
    Verdict,
    calculate,
    judge_general,
    judge_memory,
    judge_uniform,
)

__all__ = [
    "Arrivals",
    "Balance",
    "Bound",
    "Calculation",
    "Condition",
    "KnownNumbers",
    "Measured",
    "Memory",
    "Problem",
    "RateLimits",
    "Rates",
    "Report",
    "StepsTaken",
    "Verdict",
    "Weights",
    "arrivals_of",
    "as_dict",
    "balance_of",
    "calculate",
    "corollary_rates",
    "estimate_constants",
    "general_bound",
    "general_conditions",
    "general_limits",
    "general_rate",
    "judge",
    "judge_experiment",
    "judge_general",
    "judge_memory",
    "judge_uniform",
    "lower_bound",
    "measure",
    "memory_bound",
    "memory_conditions",
    "memory_limits",
    "memory_of",
    "memory_rate",
    "reused_noise",
    "rounds_needed",
    "rounds_until_speed_up",
    "sampling_variance",
    "steps_of",
    "uniform_bound",
    "uniform_conditions",
    "uniform_limits",
    "uniform_rate",
    "weights_of",
]
