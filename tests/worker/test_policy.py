import signal
import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.worker import (
    Always,
    Both,
    ConstantSteps,
    Every,
    Exponential,
    Hours,
    Moment,
    TimeBudget,
    UniformSteps,
    WallClock,
    When,
)


def moment(now_s=0.0, *, began_s=0.0, ended_s=0.0, visits=1, chance=0.5):
    return Moment(now_s, began_s, ended_s, visits, chance)


def at(hour, minute=0, tz=UTC):
    return moment(datetime(2024, 5, 1, hour, minute, tzinfo=tz).timestamp())


def test_always():
    assert Always().delay_s(moment()) == 0


def test_every_counts_from_beginning_to_beginning():
    assert Every(10).delay_s(moment(visits=0)) == 0
    assert Every(10).delay_s(moment(100, began_s=40, ended_s=90)) == 540
    assert Every(10).delay_s(moment(700, began_s=40)) == 0


@pytest.mark.parametrize(
    ("hours", "now", "wait_h"),
    [
        ((9, 17), (8, 30), 0.5),
        ((9, 17), (9, 0), 0),
        ((9, 17), (16, 59), 0),
        ((9, 17), (17, 0), 16),
        ((22, 6), (23, 0), 0),
        ((22, 6), (5, 59), 0),
        ((22, 6), (6, 0), 16),
        ((22.5, 6), (22, 0), 0.5),
        ((0, 24), (12, 0), 0),
    ],
)
def test_hours(hours, now, wait_h):
    assert Hours(*hours, tz=UTC).delay_s(at(*now)) == 3600 * wait_h


def test_hours_are_local_time_unless_a_zone_is_given():
    east = timezone(timedelta(hours=3))
    assert Hours(9, 17, tz=east).delay_s(at(7)) == 0  # it is ten there
    assert Hours(9, 17).delay_s(at(7)) >= 0  # wherever this runs


def test_hours_open_on_time_on_the_day_the_clocks_change():
    berlin = ZoneInfo("Europe/Berlin")
    evening = moment(datetime(2024, 3, 30, 23, 0, tzinfo=berlin).timestamp())
    assert Hours(6, 7, tz=berlin).delay_s(evening) == 6 * 3600  # an hour is missing that night


def test_when_asks_again():
    answers = [False, True]
    policy = When(lambda: answers.pop(0), poll_s=5)
    assert [policy.delay_s(moment()) for _ in range(2)] == [5, 0]


def test_exponential_idle_times_of_a_live_worker():
    chances = (np.arange(10_000) + 0.5) / 10_000
    waits = [Exponential(30).delay_s(moment(100, ended_s=100, chance=c)) for c in chances]
    assert np.mean(waits) == pytest.approx(30, rel=0.01)
    assert Exponential(30).delay_s(moment(10_000, ended_s=100)) == 0  # asked again when it is over
    assert Exponential(0).delay_s(moment(100, ended_s=100)) == 0


def test_both_waits_for_the_later():
    policy = Both(Every(60), Hours(22, 6, tz=UTC))
    assert policy.delay_s(at(21)) == 3600


def test_constant_steps():
    assert [ConstantSteps(2).more(done, 0.0, 0.5) for done in range(4)] == [
        True,
        True,
        False,
        False,
    ]


def test_uniform_steps_are_drawn_once_per_visit():
    def count(chance):
        return next(n for n in range(99) if not UniformSteps(2, 5).more(n, 0.0, chance))

    assert np.bincount([count(c) for c in np.arange(400) / 400]).tolist() == [0, 0, *[100] * 4]


def test_a_time_budget_takes_as_many_steps_as_fit():
    budget = TimeBudget(10)
    assert budget.more(0, 0.0, 0.5)  # one at least, however slow
    assert budget.more(4, 8.0, 0.5)  # the fifth ends at ten
    assert not budget.more(5, 10.0, 0.5)
    assert not budget.more(1, 6.0, 0.5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Every(0),
        lambda: Hours(5, 5),
        lambda: Hours(-1, 5),
        lambda: Hours(3, 25),
        lambda: When(bool, poll_s=0),
        lambda: Exponential(float("inf")),
        lambda: Exponential(-1.0),
        lambda: ConstantSteps(0),
        lambda: UniformSteps(3, 2),
        lambda: UniformSteps(0, 2),
        lambda: TimeBudget(-1),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(ConfigError, match="needs"):
        make()


def test_a_sleep_ends():
    clock = WallClock()
    since = clock.elapsed_s()
    clock.sleep(0.05)
    clock.sleep(-1)
    assert 0.05 <= clock.elapsed_s() - since < 5
    assert abs(clock.now_s() - time.time()) < 5


def test_a_sleep_is_ended_by_another_thread():
    clock = WallClock()
    threading.Timer(0.05, clock.wake).start()
    since = clock.elapsed_s()
    clock.sleep(60)
    assert clock.elapsed_s() - since < 30


def test_a_sleep_is_ended_by_a_signal_handler():
    clock = WallClock()
    before = signal.signal(signal.SIGALRM, lambda *_: clock.wake())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        since = clock.elapsed_s()
        clock.sleep(60)
        assert clock.elapsed_s() - since < 30
    finally:
        signal.signal(signal.SIGALRM, before)
