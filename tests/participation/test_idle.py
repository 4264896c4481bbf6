import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import Exponential, LogNormal

N = 100_000
NOW = np.full(N, 5.0)


def idle_times(idle, seed=0):
    rng = np.random.default_rng(seed)
    return idle.pulls(rng, idle.traits(rng, N), NOW) - NOW


def test_exponential_idle_times():
    times = idle_times(Exponential(3.0))
    assert abs(times.mean() - 3) < 4 * 3 / np.sqrt(N)
    assert abs((times > 3).mean() - np.exp(-1)) < 4 * 0.5 / np.sqrt(N)


def test_workers_that_never_idle_pull_at_once():
    assert (idle_times(Exponential(0.0)) == 0).all()


def test_log_normal_idle_times():
    idle = LogNormal(median_idle_s=3.0, sigma=0.5)
    times = idle_times(idle)
    assert abs((times < 3).mean() - 0.5) < 4 * 0.5 / np.sqrt(N)
    assert times.mean() == pytest.approx(idle.mean_s, rel=0.02)
    assert np.log(times).std() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Exponential(-1.0), "got -1.0"),
        (lambda: Exponential(float("nan")), "got nan"),
        (lambda: LogNormal(0.0, 1.0), "got 0.0 and 1.0"),
        (lambda: LogNormal(1.0, -1.0), "got 1.0 and -1.0"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
