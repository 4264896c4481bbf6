"""Numbers that are easy to work with by hand."""

import numpy as np

from anarchic.participation import Timetable
from anarchic.participation.timetable import running_numbers
from anarchic.theory import Arrivals, Memory, Problem, Rates

# L = 2, eta eta_L = 1/2, L eta eta_L = 1, L^2 eta_L^2 = 1/25
PROBLEM = Problem(smoothness=2, sigma_local=3, sigma_global=5, gap=7)
RATES = Rates(server_lr=5, local_lr=0.1)


def arrivals(**other):
    """m = 4 of M = 10, T = 50, tau = 3, K = 2."""
    return Arrivals.steady(
        **{"workers": 10, "m": 4, "rounds": 50, "staleness": 3, "local_steps": 2} | other
    )


def memory(**other):
    """M = 10, m' = 5, T = 50, tau = 6, K = 2: (M - m') tau / M = 3."""
    return Memory.steady(
        **{"workers": 10, "rounds": 50, "row_age": 6, "fresh": 5, "local_steps": 2} | other
    )


def table(worker, base, steps, *, workers, m=2):
    """A timetable from its columns."""
    worker, base, steps = (np.array(column, np.int32) for column in (worker, base, steps))
    return Timetable(workers, m, worker, running_numbers(worker), base, steps)
