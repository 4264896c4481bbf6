import pytest

from anarchic.errors import ConfigError
from anarchic.theory import Arrivals, Memory, Problem, Rates
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
        (Rates, {"server_lr": 1, "local_lr": 0}, "eta_L=0"),
        (Rates, {"server_lr": float("inf"), "local_lr": 1}, "server_lr=inf"),
        (Arrivals.steady, {"workers": 2, "m": 0, "rounds": 1}, "m=0"),
        (Arrivals.steady, {"workers": 2, "m": 1, "rounds": 1, "staleness": -1}, "staleness=-1"),
        (Arrivals.steady, {"workers": 2, "m": 1, "rounds": 1, "local_steps": 0}, "local_steps=0"),
        (Memory.steady, {"workers": 2, "rounds": 1, "fresh": 3}, "fresh=3"),
    ],
)
def test_numbers_that_cannot_be_are_refused(kind, numbers, named):
    with pytest.raises(ConfigError, match=named):
        kind(**numbers)
