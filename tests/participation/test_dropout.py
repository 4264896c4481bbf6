import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import ConstantSteps, ContinuousTime, Dropout, Exponential, Work


def test_lost_visits_stop_at_a_uniform_part_of_their_work():
    n = 100_000
    seconds = np.full(n, 10.0)
    lost = Dropout(lost_share=0.3).loses(np.random.default_rng(0), seconds)
    assert abs(lost.mean() - 0.3) < 4 * np.sqrt(0.21 / n)
    assert (seconds[~lost] == 10).all()
    assert abs(seconds[lost].mean() - 5) < 4 * 10 / np.sqrt(12 * 0.3 * n)
    assert seconds[lost].max() < 10


def test_a_share_of_visits_is_lost():
    process = ContinuousTime(
        Exponential(1.0), Work(ConstantSteps(1), 1.0), Dropout(lost_share=0.25)
    )
    visits = process.visits(np.random.default_rng(0), 1000, 100.0)
    # At the horizon a few more visits are known to be lost than would be if all had ended.
    assert visits.lost.mean() == pytest.approx(0.25, abs=0.01)


def test_workers_leave_for_ever():
    process = ContinuousTime(Exponential(1.0), Work(ConstantSteps(1), 1.0), Dropout(leave=0.2))
    visits = process.visits(np.random.default_rng(0), 5000, 1e6)
    counts = np.bincount(visits.worker, minlength=5000)
    assert counts.min() == 1
    assert abs(counts.mean() - 5) < 4 * np.sqrt(20 / 5000)  # geometric: mean 5, variance 20


@pytest.mark.parametrize("settings", [{"lost_share": 1.0}, {"lost_share": -0.1}, {"leave": 1.0}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigError, match="at 1 no update would arrive"):
        Dropout(**settings)
