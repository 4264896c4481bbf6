import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.stats import exponent

stats = pytest.importorskip("scipy.stats", reason="needs SciPy: the extra stats")


def test_a_power_law_is_found_exactly():
    found = exponent({size: [300.0 * size**-0.7] * 3 for size in (1, 2, 4, 8)})
    assert found.value == pytest.approx(-0.7)
    assert (found.low, found.high) == (pytest.approx(-0.7), pytest.approx(-0.7))
    assert found.costs == pytest.approx([300 * size**-0.7 for size in (1, 2, 4, 8)])


def test_the_slope_by_hand():
    # log2 cost 3, 2, 2 at log2 size 0, 1, 2: slope -1/2
    assert exponent({1: [8.0], 2: [4.0], 4: [4.0]}).value == pytest.approx(-0.5)


def test_the_slope_is_that_of_polyfit():
    rng = np.random.default_rng(0)
    costs = {size: np.exp(rng.normal(size=5)) for size in (1, 3, 10, 40)}
    means = [np.log(each).mean() for each in costs.values()]
    assert exponent(costs).value == pytest.approx(np.polyfit(np.log(list(costs)), means, 1)[0])


def test_without_repeats_there_is_no_interval():
    found = exponent({1: [8.0], 2: [4.0, 4.1]})
    assert (found.low, found.high) == (None, None)


def test_the_interval_of_two_sizes_is_welchs():
    rng = np.random.default_rng(0)
    one, two = np.exp(rng.normal(size=4)), np.exp(0.3 * rng.normal(size=6))
    found = exponent({1: one, np.e: two}, level=0.9)  # the slope is the difference of the means
    welch = stats.ttest_ind(np.log(two), np.log(one), equal_var=False).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((welch.low, welch.high))


SIZES = (1, 2, 4, 8)
# Standard deviations of log cost, by size.
SPREADS = {"alike": (0.1,) * 4, "one size": (0.3, 0.1, 0.1, 0.1), "growing": (0.05, 0.1, 0.2, 0.4)}


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(
    "repeats", [2, 5, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 10))]
)
def test_the_interval_covers_the_truth_as_often_as_it_says(repeats, spread):
    rng, trials = np.random.default_rng(1), 1000
    covered = 0
    for _ in range(trials):
        noise = {
            n: s * rng.normal(size=repeats) for n, s in zip(SIZES, SPREADS[spread], strict=True)
        }
        found = exponent({n: 100 / n * np.exp(each) for n, each in noise.items()})
        covered += found.low <= -1 <= found.high
    # 1,000 trials are within 2 % of the truth; two repeats of very different spread are too few.
    assert (0.90 if repeats == 2 else 0.92) <= covered / trials <= 0.99


@pytest.mark.parametrize(
    "costs", [{1: [1.0]}, {1: [1.0], 2: []}, {1: [1.0], 2: [0.0]}, {0: [1.0], 2: [1.0]}]
)
def test_what_has_no_exponent_is_refused(costs):
    with pytest.raises(ConfigError):
        exponent(costs)
