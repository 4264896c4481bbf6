import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.stats import exponent


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


def test_the_interval_covers_the_truth_about_as_often_as_it_says(monkeypatch):
    monkeypatch.setattr("anarchic.stats.exponents.RESAMPLES", 500)
    rng, covered, trials = np.random.default_rng(1), 0, 200
    for _ in range(trials):
        costs = {n: 100 / n * np.exp(0.2 * rng.normal(size=12)) for n in (1, 2, 4, 8)}
        found = exponent(costs, level=0.9)
        covered += found.low <= -1 <= found.high
    assert 0.82 <= covered / trials <= 0.96


@pytest.mark.parametrize(
    "costs", [{1: [1.0]}, {1: [1.0], 2: []}, {1: [1.0], 2: [0.0]}, {0: [1.0], 2: [1.0]}]
)
def test_what_has_no_exponent_is_refused(costs):
    with pytest.raises(ConfigError):
        exponent(costs)
