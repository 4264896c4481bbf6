"""Statistics against SciPy, published examples, and simulations."""

import numpy as np
import pytest

from anarchic.errors import ConfigError, RunError
from anarchic.stats import (
    Interval,
    at_most,
    different,
    equivalent,
    holm,
    interval,
    paired,
    seeds_needed,
    sentence,
)

scipy_stats = pytest.importorskip("scipy.stats", reason="needs SciPy: the extra stats")
VALUES = np.array([0.3, -0.1, 0.4, 0.2, 0.05, 0.15])


def test_differences_are_of_common_seeds():
    ours, theirs = {0: 0.9, 1: 0.8, 2: 0.7}, {1: 0.5, 2: 0.6, 3: 0.1}
    assert paired(ours, theirs) == pytest.approx([0.3, 0.1])
    with pytest.raises(RunError, match="at least 2 common seeds, found 1"):
        paired({0: 1.0, 1: 1.0}, {1: 1.0})
    with pytest.raises(RunError, match=r"seeds \[1\] are missing"):
        paired({0: 1.0, 1: float("nan")}, {0: 1.0, 1: 1.0})


def test_students_interval_is_scipys():
    found = interval(VALUES, method="t")
    low, high = scipy_stats.ttest_1samp(VALUES, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert (found.mean, found.method) == (pytest.approx(VALUES.mean()), "t")


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((-0.0001, -0.0008, 0.0005), "-0.000100 [-0.000800, +0.000500]"),
        ((0.0271, 0.0142, 0.04), "+0.0271 [+0.0142, +0.0400]"),
        ((-1234.56, -1300.0, -1170.0), "-1234.6 [-1300.0, -1170.0]"),
        ((0.5, 0.5, 0.5), "+0.5000 [+0.5000, +0.5000]"),
    ],
)
def test_an_interval_has_three_digits_of_its_width(ends, said):
    assert str(Interval(*ends, 0.95, "t", 5)) == said


@pytest.mark.parametrize("count", [2, 9, 10, 11, 100])
def test_students_interval_is_the_default_for_any_number_of_values(count):
    drawn = np.random.default_rng(count).normal(size=count)
    assert interval(drawn) == interval(drawn, method="t")


def test_the_bootstrap_follows_the_skew_of_values():
    drawn = np.random.default_rng(1).exponential(size=30)
    found = interval(drawn, method="bca")
    assert found.method == "bca"
    # Skewed to the right: the interval reaches further up than down, which Student's does not.
    assert found.high - found.mean > found.mean - found.low
    assert interval(drawn, method="bca") == found  # it is drawn with a seed


def test_the_bootstrap_of_ten_values_is_narrower_than_students():
    drawn = np.random.default_rng(0).normal(size=(20, 10))
    widths = {
        method: np.mean([(i := interval(x, method=method)).high - i.low for x in drawn])
        for method in ("t", "bca")
    }
    assert widths["bca"] < 0.95 * widths["t"]


@pytest.mark.parametrize("method", ["t", "bca"])
@pytest.mark.slow
def test_intervals_cover_the_mean_as_often_as_they_say(method):
    draw, runs, covered = np.random.default_rng(0), 400, 0
    for _ in range(runs):
        found = interval(draw.normal(3.0, 2.0, size=20), method=method)
        covered += found.low <= 3.0 <= found.high
    assert 0.91 <= covered / runs <= 0.98  # four deviations of a share of 0.95 are 0.044


def test_tests_are_scipys():
    assert different(VALUES) == pytest.approx(scipy_stats.ttest_1samp(VALUES, 0).pvalue)
    less = scipy_stats.ttest_1samp(VALUES, 0.4, alternative="less").pvalue
    assert at_most(VALUES, 0.4) == pytest.approx(less)


def test_equivalence_is_two_one_sided_tests():
    close = np.array([0.001, -0.002, 0.0015, 0.0005, -0.001, 0.002, -0.0005, 0.001])
    upper = scipy_stats.ttest_1samp(close, 0.005, alternative="less").pvalue
    lower = scipy_stats.ttest_1samp(close, -0.005, alternative="greater").pvalue
    assert equivalent(close, 0.005) == pytest.approx(max(upper, lower))
    assert equivalent(close, 0.005) < 0.01 < equivalent(VALUES, 0.005)


@pytest.mark.parametrize("count", [2, 3, 5, 10])
@pytest.mark.parametrize("noise", [0.0, 1e-16])  # what floats leave of equal differences
def test_of_values_that_do_not_vary_the_sign_test_says_what_can_be_said(count, noise):
    """Of two seeds that happen to agree Student's test would be certain."""
    same = [0.125 + noise * n for n in range(count)]
    assert different(same) == min(1.0, 2 * 0.5**count)
    assert (at_most(same, 0.2), at_most(same, 0.125), at_most(same, 0.1)) == (0.5**count, 1.0, 1.0)
    assert (equivalent(same, 0.2), equivalent(same, 0.1)) == (0.5**count, 1.0)
    assert scipy_stats.binomtest(count, count, alternative="greater").pvalue == at_most(same, 0.2)
    assert different([0.0] * count) == 1.0
    assert interval(same).low == pytest.approx(interval(same).high, abs=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 6])
def test_coarse_values_make_no_more_false_claims(seeds):
    """Accuracy on 360 samples: with two seeds equal differences are common."""
    draw, runs, wrong = np.random.default_rng(seeds), 2000, 0
    for _ in range(runs):
        ours, theirs = draw.binomial(360, 0.98, (2, seeds)) / 360
        found = paired(dict(enumerate(ours)), dict(enumerate(theirs)))
        wrong += different(found) < 0.05
    assert wrong / runs <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / runs)


def test_what_rounding_makes_of_equal_differences_is_no_spread():
    ours, theirs = {0: 0.84722, 1: 0.84444, 2: 0.875}, {0: 0.84444, 1: 0.84167, 2: 0.87222}
    assert paired(ours, theirs) == pytest.approx([0.00278, 0.00277, 0.00278])  # 1/360 each
    assert different(paired(ours, theirs)) < 0.001
    assert len(set(paired(ours, theirs, digits=5))) == 1
    assert different(paired(ours, theirs, digits=5)) == 0.25
    coarse = {0: 0.8476, 1: 0.8613, 2: 0.8752}, {0: 0.8444, 1: 0.8583, 2: 0.8722}
    assert np.array_equal(paired(*coarse, digits=5), paired(*coarse))


def test_holm_by_hand():
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1; none below the one before it.
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert holm({"a": 0.7, "b": 0.8}) == {"a": 1.0, "b": 1.0}


def test_seeds_that_are_enough_by_the_tables_of_students_test():
    # One-sided, alpha 0.05, an effect of half a deviation: 27 pairs for power 0.8, 36 for 0.9.
    assert seeds_needed(1.0, 0.5, power=0.8) == 27
    assert seeds_needed(1.0, 0.5, power=0.9) == 36
    assert seeds_needed(0.0, 0.5) == 5  # 2^-5 < 0.05
    assert at_most([0.0] * 5, 0.5) < 0.05 <= at_most([0.0] * 4, 0.5)


def test_seeds_needed_give_the_power_that_was_asked():
    draw, shown, runs = np.random.default_rng(0), 0, 500
    count = seeds_needed(0.02, 0.015, power=0.8)
    for _ in range(runs):
        shown += at_most(draw.normal(0.0, 0.02, size=count), 0.015) < 0.05
    assert 0.74 <= shown / runs <= 0.9  # three deviations, and whole seeds


def test_what_can_be_said_in_a_sentence():
    better = [0.02, 0.03, 0.025, 0.01, 0.03]
    assert "It is higher than that of fedavg" in sentence("afa-cs", "fedavg", better)
    said = sentence("afa-cs", "fedavg", [0.01, -0.012, 0.002, -0.004], bound=0.05)
    assert "No difference was shown, which does not show that there is none." in said
    assert "That afa-cs costs at most 0.05 is shown" in said
    assert "costs at most 0.001 is not shown" in sentence("a", "b", VALUES - 0.3, bound=0.001)


@pytest.mark.parametrize(
    "values",
    [
        # One far value: the bootstrap's interval is above 0, and Student's p is 0.16.
        [-0.007, 0.01, 0.0, 0.0, -0.006, 0.016, -0.007, 0.008, 0.028, 0.061],
        # The other way round: p is 0.04, and the bootstrap's interval reaches 0.
        [0.018, 0.028, 0.003, 0.007, 0.015, 0.005, 0.011, 0.018, -0.02, 0.012],
    ],
)
def test_a_sentence_claims_what_both_its_interval_and_its_test_say(values):
    found, drawn = interval(values), interval(values, method="bca")
    shown = different(values) < 0.05
    assert shown is (found.low > 0) is not (drawn.low > 0)
    assert ("It is higher than that of b" in sentence("a", "b", values)) is shown


def test_a_cost_is_shown_only_if_its_limit_is_below_the_bound():
    values = [0.007, -0.01, 0.0, 0.0, 0.006, -0.016, 0.007, -0.008, -0.028, -0.061]
    most = -interval(values, level=0.9).low
    for bound, said in ((0.999 * most, "is not shown"), (1.001 * most, "is shown")):
        found = sentence("a", "b", values, bound=bound)
        assert f"{said} (at most {most:.4f} with 95 % confidence" in found


@pytest.mark.parametrize("values", [[], [1.0], [1.0, float("nan")], [[1.0, 2.0]]])
def test_too_few_values_are_refused(values):
    with pytest.raises(ConfigError, match="at least 2 finite values"):
        interval(values)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="between 0 and 1"):
        interval(VALUES, level=95)
    with pytest.raises(ConfigError, match="by method t or bca, got 'normal'"):
        interval(VALUES, method="normal")
    with pytest.raises(ConfigError, match="positive bound"):
        equivalent(VALUES, 0.0)
    with pytest.raises(ConfigError, match="bound > 0"):
        seeds_needed(1.0, 0.0)
    with pytest.raises(ConfigError, match="More than 100 seeds"):
        seeds_needed(1.0, 0.01, most=100)
