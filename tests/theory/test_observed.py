from math import inf

import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import ConstantSteps, Sampler, UniformSteps
from anarchic.theory import arrivals_of, balance_of, memory_of, steps_of
from anarchic.theory.observed import Balance
from tests.theory.make import table

PAPER = (0.19, 0.19, *[0.1] * 6, 0.01, 0.01)
# Three workers, two updates per round, five rounds and one update over.
BY_HAND = table(
    worker=[0, 1, 2, 0, 2, 1, 2, 0, 0, 0, 1],
    base=[0, 0, 1, 0, 2, 2, 3, 2, 4, 4, 5],
    steps=[1, 2, 4, 1, 2, 2, 4, 4, 1, 1, 9],
    workers=3,
)


def test_arrivals_by_hand():
    found = arrivals_of(BY_HAND)
    assert (found.workers, found.m, found.rounds) == (3, 2, 5)
    assert found.staleness == 1  # rounds 2 and 4: pulled 0 at version 1, 2 at version 3
    assert found.steps_max == 4  # the update over is none of a round's
    assert found.mean_steps == pytest.approx(22 / 10)
    # 1, 2 | 4, 1 | 2, 2 | 4, 4 | 1, 1
    assert found.inverse_steps == pytest.approx((1 + 0.5 + 0.25 + 1 + 1 + 0.5 + 2) / 10)
    assert found.square_steps == pytest.approx((2.5 + 8.5 + 4 + 16 + 1) / 5)
    assert found.worst_square_steps == 16


def test_the_distribution_of_local_steps_by_hand():
    found = steps_of(BY_HAND)  # 1 1 1 1 2 2 2 4 4 4; the 9 is of no full round
    assert dict(found.counts) == {1: 4, 2: 3, 4: 3}
    assert found.quartiles == (1, 1, 2, 4, 4)  # the 1st, 3rd, 5th, 8th and 10th
    same = table(worker=[0, 1], base=[0, 0], steps=[3, 3], workers=2)
    assert steps_of(same).quartiles == (3, 3, 3, 3, 3)
    spread = table(worker=[0, 1, 0, 1], base=[0, 0, 1, 1], steps=[7, 1, 9, 3], workers=2)
    assert steps_of(spread).quartiles == (1, 1, 3, 7, 9)  # at the edge of a quarter, the lower


def test_memory_by_hand():
    # Worker 2 first reports in round 2, so the memory is full from step 1 on. Rows there, as
    # (base version, K) of workers 0, 1, 2:
    #   step 1: (0, 1) (0, 2) (1, 4)   ages 1 1 0
    #   step 2: (0, 1) (2, 2) (2, 2)   ages 2 0 0
    #   step 3: (2, 4) (2, 2) (3, 4)   ages 1 1 0
    #   step 4: (4, 1) (2, 2) (3, 4)   ages 0 2 1
    found = memory_of(BY_HAND)
    assert (found.workers, found.rounds, found.first) == (3, 4, 1)
    assert found.row_age == 2
    assert found.fresh == 1
    assert found.sum_steps == pytest.approx((7 + 5 + 10 + 7) / 4)
    assert found.sum_square_steps == pytest.approx((21 + 9 + 36 + 21) / 4)
    assert found.worst_sum_square_steps == 36
    inverses = (1.75 / 3, 2 / 3, 1 / 3, 1.75 / 3)  # of 1 2 4, 1 2 2, 4 2 4, 1 2 4
    assert inverses[2] == pytest.approx((0.25 + 0.5 + 0.25) / 3)
    assert found.inverse_steps == pytest.approx(sum(inverses) / 4)
    # Steps that went along each row before, over its K: 0 1/2 0, 1/1 0 0, 0 1/2 0, 0 2/2 1/4
    assert found.reuse == pytest.approx((0.5 + 1 + 0.5 + 1.25) / 3 / 4)


def test_rows_age_even_if_no_update_is_stale():
    sampled = Sampler(10, 2, ConstantSteps(3)).timetable(0, rounds=200)
    assert arrivals_of(sampled).staleness == 0
    found = memory_of(sampled)
    assert found.row_age > 10
    assert found.reuse == pytest.approx((10 / 2 - 1) / 3, rel=0.1)  # M/m - 1 steps, K = 3
    assert found.fresh == 2  # those that have just reported
    assert (found.inverse_steps, found.sum_steps) == (pytest.approx(1 / 3), 30)


def test_there_are_no_old_rows_if_all_report_in_every_round():
    found = memory_of(Sampler(4, 4, ConstantSteps(1)).timetable(0, rounds=5))
    assert (found.row_age, found.fresh, found.first, found.rounds) == (0, 4, 0, 5)
    assert found.reuse == 0


def test_a_worker_that_never_reports_makes_the_delay_unbounded():
    silent = table(worker=[0, 1, 0, 1], base=[0, 0, 1, 1], steps=[1] * 4, workers=3)
    found = memory_of(silent)
    assert (found.row_age, found.rounds, found.fresh, found.reuse) == (inf, 2, 2, 0)
    # A silent worker has no row at all, so none without delay either.
    once = memory_of(table(worker=[0, 1], base=[0, 0], steps=[9, 1], workers=3))
    assert (once.fresh, once.sum_steps) == (2, 10)


def test_the_longest_visit_counts_also_when_its_row_is_replaced():
    found = memory_of(table(worker=[0, 0], base=[0, 1], steps=[9, 1], workers=1, m=1))
    assert (found.steps_max, found.worst_sum_square_steps) == (9, 81)


def test_a_table_without_a_round_is_refused():
    short = table(worker=[0], base=[0], steps=[1], workers=2)
    for read in (arrivals_of, memory_of, balance_of, steps_of):
        with pytest.raises(ConfigError, match="no full round"):
            read(short)


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


def test_the_words_for_a_balance_are_those_of_its_two_tests():
    def words(surprise, shift):
        return Balance(0.245, 0.254, 0, 0.01, surprise, shift).words

    assert words(0.0, 0.0) == "as if equally likely"
    assert words(99.0, 0.0) == words(99.0, 99.0) == "biased"
    assert words(0.0, 99.0) == "even in the run, but not at all times"
