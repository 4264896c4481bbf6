import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import (
    ConstantSteps,
    ContinuousTime,
    Diurnal,
    Exponential,
    LogNormal,
    Unequal,
    Work,
)

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


def test_unequal_workers_have_means_of_their_own_for_good():
    idle = Unequal(3.0, sigma=1.2)
    means = idle.traits(np.random.default_rng(0), N)
    assert means.mean() == pytest.approx(3.0, rel=0.03)
    assert np.log(means).std() == pytest.approx(1.2, rel=0.02)
    two = np.repeat([0.5, 4.0], N // 2)  # one worker idles 0.5 s on average, the other 4
    times = idle.pulls(np.random.default_rng(1), two, NOW) - NOW
    assert times[: N // 2].mean() == pytest.approx(0.5, rel=0.03)
    assert times[N // 2 :].mean() == pytest.approx(4.0, rel=0.03)


def test_unequal_workers_without_spread_are_exponential():
    assert (Unequal(3.0, sigma=0.0).traits(np.random.default_rng(0), 5) == 3.0).all()


def test_unequal_workers_that_idle_less_come_more_often():
    process = ContinuousTime(Unequal(3.0), Work(ConstantSteps(1), step_s=1e-6))
    visits = np.bincount(process.visits(np.random.default_rng(0), 50, 3000.0).worker, minlength=50)
    assert visits.max() > 10 * visits.min()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Unequal(0.0), "got 0.0 and 1.2"),
        (lambda: Unequal(1.0, sigma=-1.0), "got 1.0 and -1.0"),
        (lambda: Exponential(-1.0), "got -1.0"),
        (lambda: Exponential(float("nan")), "got nan"),
        (lambda: LogNormal(0.0, 1.0), "got 0.0 and 1.0"),
        (lambda: LogNormal(1.0, -1.0), "got 1.0 and -1.0"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


HOUR = 3600.0
DAY = 24 * HOUR


def pulls(idle: Diurnal, days: int = 10, workers: int = 300) -> np.ndarray:
    process = ContinuousTime(idle, Work(ConstantSteps(1), step_s=1e-6))
    return process.visits(np.random.default_rng(0), workers, days * DAY).pull_s


def test_asleep_workers_do_not_come():
    hour = pulls(Diurnal(HOUR, awake_h=6, wakes_h=(20, 20))) % DAY / HOUR
    assert ((hour >= 20) | (hour <= 2.0001)).all()
    # Even over the six hours: the mean of hours since waking is 3, its deviation sqrt(3).
    since = (hour - 20) % 24
    assert abs(since.mean() - 3) < 4 * np.sqrt(3 / len(since))


def test_rates_by_day_and_by_night():
    idle = Diurnal(HOUR, awake_h=8, asleep=0.25, wakes_h=(6, 6))
    hour = pulls(idle) % DAY / HOUR
    by_day = ((hour >= 6) & (hour < 14)).sum() / (10 * 300 * 8)
    by_night = ((hour < 6) | (hour >= 14)).sum() / (10 * 300 * 16)
    assert by_day == pytest.approx(1.0, abs=4 / np.sqrt(24_000))
    assert by_night == pytest.approx(0.25, abs=4 * 0.5 / np.sqrt(48_000))
    assert idle.mean_s == HOUR * 24 / 12  # 8 hours at rate 1 and 16 at 1/4 are worth 12


def test_each_worker_wakes_at_an_hour_of_its_own():
    idle = Diurnal(HOUR, awake_h=1, wakes_h=(6, 12))
    hour = pulls(idle) % DAY / HOUR
    assert hour.min() >= 6
    assert 12.5 < hour.max() < 13.0001
    wakes = idle.traits(np.random.default_rng(0), 1000)
    assert 6 * HOUR <= wakes.min() < 6.1 * HOUR
    assert 11.9 * HOUR < wakes.max() <= 12 * HOUR


def test_always_awake_is_exponential():
    times = pulls(Diurnal(HOUR, awake_h=24))
    assert len(times) == pytest.approx(300 * 240, abs=4 * np.sqrt(300 * 240))


def test_awake_time_and_wall_time_are_inverse():
    idle = Diurnal(HOUR, awake_h=5, asleep=0.1)
    wall = np.random.default_rng(0).uniform(-DAY, 10 * DAY, 1000)
    assert np.allclose(idle._wall_time(idle._awake_time(wall)), wall)


@pytest.mark.parametrize(
    "settings",
    [
        {"mean_idle_s": 0.0},
        {"awake_h": 0.0},
        {"awake_h": 25.0},
        {"asleep": 1.5},
        {"wakes_h": (3.0, 2.0)},
        {"wakes_h": (0.0, 25.0)},
    ],
)
def test_impossible_diurnal_settings_are_refused(settings):
    with pytest.raises(ConfigError, match="Diurnal needs"):
        Diurnal(**{"mean_idle_s": 1.0, **settings})


def test_a_diurnal_worker_that_is_made_late_idles_as_much_awake_time():
    """Awake from 2 h to 10 h, hardly at all else."""
    habit, hour = Diurnal(600.0, awake_h=8.0, asleep=0.0), 3600.0
    wakes = 2 * hour
    # Drawn: free at 9 h, pulls at 27 h; one hour awake that day, one after 26 h of the next.
    late = [habit.moved_s(wakes, 9 * hour, 27 * hour, now * hour) for now in (3, 9, 9.5, 20)]
    assert np.allclose(np.array(late) / hour, [5, 27, 27.5, 28])
