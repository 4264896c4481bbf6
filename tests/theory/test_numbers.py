from dataclasses import replace

import pytest

from anarchic.errors import ConfigError
from anarchic.theory import Arrivals, KnownNumbers, Memory, Problem, Rates, calculate
from tests.theory.make import arrivals, memory


def test_constant_local_steps_fill_in_every_mean():
    found = arrivals(local_steps=4)
    assert (found.steps_max, found.inverse_steps, found.mean_steps) == (4, 0.25, 4)
    assert (found.square_steps, found.worst_square_steps) == (16, 16)


def test_the_sums_of_theorem_4_are_over_all_rows():
    found = memory(local_steps=4)
    assert (found.inverse_steps, found.sum_steps, found.sum_square_steps) == (0.25, 40, 160)
    assert found.delay == 3  # (10 - 5) * 6 / 10
    assert memory(fresh=10, row_age=float("inf")).delay == 0
    assert found.reuse == 3 / 4
    assert memory(local_steps=4, used=1).reuse == 1 / 4


@pytest.mark.parametrize(
    ("kind", "numbers", "named"),
    [
        (Problem, {"smoothness": 0, "sigma_local": 1, "sigma_global": 1, "gap": 1}, "smoothness"),
        (Problem, {"smoothness": 1, "sigma_local": -1, "sigma_global": 1, "gap": 1}, "sigma_local"),
        (
            Problem,
            {"smoothness": 1, "sigma_local": 1, "sigma_global": 1, "gap": float("nan")},
            "gap",
        ),
        (
            Problem,
            {"smoothness": 1e200, "sigma_local": 1, "sigma_global": 1, "gap": 1},
            "from 1e-20 to 1e\\+20, got smoothness=1e\\+200",
        ),
        (Rates, {"server_lr": 1, "local_lr": 0}, "local_lr=0"),
        (Rates, {"server_lr": -1, "local_lr": 1}, "server_lr=-1"),
        (Rates, {"server_lr": float("inf"), "local_lr": 1}, "server_lr=inf"),
        (Arrivals.steady, {"workers": 2, "m": 0, "rounds": 1}, "m=0"),
        (Arrivals.steady, {"workers": 2, "m": 1, "rounds": 1, "staleness": -1}, "staleness=-1"),
        (Arrivals.steady, {"workers": 2, "m": 1, "rounds": 1, "local_steps": 0}, "local_steps=0"),
        (Arrivals.steady, {"workers": 2, "m": 1, "rounds": 10**400}, "rounds=10000"),
        (Memory.steady, {"workers": 2, "rounds": 1, "fresh": 3}, "fresh=3"),
        (Memory.steady, {"workers": 2, "rounds": 1, "row_age": float("nan")}, "row_age=nan"),
        (
            lambda **worst: replace(arrivals(), **worst),
            {"worst_square_steps": float("nan")},
            "worst_square_steps=nan",
        ),
        (
            lambda **worst: replace(memory(), **worst),
            {"worst_sum_square_steps": 0},
            "worst_sum_square_steps=0",
        ),
    ],
)
def test_impossible_numbers_are_refused(kind, numbers, named):
    with pytest.raises(ConfigError, match=named):
        kind(**numbers)


@pytest.mark.parametrize("L", [1e-20, 1e20])
@pytest.mark.parametrize("far", [1, 10**20])
@pytest.mark.parametrize("rate", [1e-100, 1e20])
def test_the_largest_and_smallest_numbers_do_not_overflow(L, far, rate):
    problem = {"smoothness": L, "sigma_local": 1e20, "sigma_global": 1e20, "gap": 1e20}
    rates = {"server_lr": rate, "local_lr": rate}
    participation = {"rounds": far, "workers": far, "m": far, "staleness": far - 1}
    for steps in (1, 10**9):
        # The sums over M rows are numbers of the same kind.
        workers = {"workers": 1} if steps > 1 else {}
        given = problem | rates | participation | workers
        found = calculate(KnownNumbers(**given, local_steps=steps))
        for verdict in found.verdicts:
            assert verdict.bound.total > 0
            assert verdict.limits.rates().step > 0
            assert verdict.rounds_needed >= 1
