import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import (
    ConstantSteps,
    ExponentialTime,
    LogNormalTime,
    SpeedClasses,
    UniformSteps,
    Work,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_work_time_is_steps_times_step_time_times_speed():
    work = Work(ConstantSteps(4), step_s=0.5)
    factor = np.array([1.0, 3.0])
    steps = np.array([4, 4], np.int32)
    assert work.draw_seconds(rng(), steps, factor).tolist() == [2.0, 6.0]


@pytest.mark.parametrize(
    ("distribution", "variance"),
    [(ExponentialTime(), 1.0), (LogNormalTime(0.5), np.exp(0.25) - 1)],
)
def test_time_distributions_have_mean_1(distribution, variance):
    n = 200_000
    factors = distribution.draw(rng(), n)
    assert abs(factors.mean() - 1) < 4 * np.sqrt(variance / n)
    assert abs(factors.var() / variance - 1) < 0.05


def test_speed_classes_are_drawn_by_their_shares():
    n = 100_000
    factor = SpeedClasses({"fast": (0.2, 0.5), "none": (0.0, 7.0), "slow": (0.8, 2.0)}).draw(
        rng(), n
    )
    assert set(factor.tolist()) == {0.5, 2.0}
    assert abs((factor == 0.5).mean() - 0.2) < 4 * np.sqrt(0.2 * 0.8 / n)


def test_pace_is_that_of_the_mean_rate():
    work = Work(
        UniformSteps(1, 4), step_s=2.0, speeds=SpeedClasses({"a": (0.5, 1.0), "b": (0.5, 3.0)})
    )
    # Mean K is 2.5: cycles of 5 + 5 and of 5 + 15 seconds, rates 1/10 and 1/20.
    assert work.pace_s(5.0) == pytest.approx(1 / (0.5 / 10 + 0.5 / 20))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Work(ConstantSteps(1), step_s=0.0),
            r"0 < step_s < inf \(seconds per local step\), got 0.0",
        ),
        (lambda: LogNormalTime(0.0), "sigma > 0, got 0.0"),
        (lambda: SpeedClasses({}), "at least one class"),
        (lambda: SpeedClasses({"a": (0.5, 1.0)}), "sum to 1, got 0.5"),
        (lambda: SpeedClasses({"a": (1.0, 0.0)}), "'a' has share 1.0 and factor 0.0"),
        (lambda: SpeedClasses({"a": (-0.5, 1.0), "b": (1.5, 1.0)}), "'a' has share -0.5"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
