import numpy as np
import pytest

from anarchic.participation import ConstantSteps, Sampler, UniformSteps
from anarchic.theory import balance_of
from tests.theory.make import table

PAPER = (0.19, 0.19, *[0.1] * 6, 0.01, 0.01)


def visits(worker, workers, m=1):
    """Updates of these workers, never late."""
    base = np.arange(len(worker)) // m
    return table(worker, base, np.ones(len(worker)), workers=workers, m=m)


def test_balance_by_hand():
    found = balance_of(visits([0, 0, 0, 1, 1, 2, 2, 0, 0, 1], workers=3, m=2))  # 5, 3, 2 of 10
    assert (found.share_min, found.share_max, found.silent) == (0.2, 0.5, 0)
    assert found.skew == pytest.approx(1 / 6 + 1 / 30 + 2 / 15)
    worst = balance_of(visits([0, 0], workers=2))  # Theorem 1: an error ball of 1^2 sigma_G^2
    assert (worst.skew, worst.silent) == (1, 1)
    alone = balance_of(visits([0, 0], workers=1))
    assert (alone.surprise, alone.shift, alone.skew) == (0, 0, 0)


def test_the_surprise_is_that_of_the_chi_squared_test():
    # 30 and 10 where 20 each are expected: 5 + 5 = 10 with one degree of freedom.
    found = balance_of(visits([0, 0, 0, 1] * 10, workers=2))
    assert found.surprise == pytest.approx((10 ** (1 / 3) - 7 / 9) / (2 / 9) ** 0.5)
    # In windows of 10 updates 3, 5, 4 and 0 by the first worker, 3 on average, and 7, 5, 6 and 10
    # by the second: (0 + 4 + 1 + 9) (1/3 + 1/7) = 20/3 with three degrees of freedom.
    windows = [0] * 3 + [1] * 7 + [0] * 5 + [1] * 5 + [0] * 4 + [1] * 16
    found = balance_of(visits(windows, workers=2))
    assert found.shift == pytest.approx(((20 / 9) ** (1 / 3) - 25 / 27) / (2 / 27) ** 0.5)


def test_uniform_arrivals_look_even_and_biased_ones_do_not():
    uniform = Sampler(10, 5, UniformSteps(1, 10))
    biased = Sampler(10, 5, UniformSteps(1, 10), probabilities=PAPER)
    for seed in range(20):
        assert balance_of(uniform.timetable(seed, rounds=150)).even
        found = balance_of(biased.timetable(seed, rounds=150))
        assert (found.biased, found.shifting, found.even) == (True, False, False)


def test_diurnal_workers_are_even_in_the_run_but_not_at_all_times():
    # The first half of the workers in the first ten rounds of every twenty, then the others.
    halves = [np.arange(40) % 4 + 4 * (turn % 2) for turn in range(10)]
    found = balance_of(visits(np.concatenate(halves), workers=8, m=4))
    assert (found.biased, found.shifting, found.even) == (False, True, False)
    assert found.surprise < 0


def test_equally_likely_workers_are_rarely_called_biased():
    single = Sampler(20, 1, ConstantSteps(1))
    found = [balance_of(single.timetable(seed, rounds=400)) for seed in range(200)]
    assert sum(not balance.even for balance in found) <= 1
    for seen in ([b.surprise for b in found], [b.shift for b in found]):
        assert abs(np.mean(seen)) < 0.3
        assert np.std(seen) == pytest.approx(1, abs=0.2)
