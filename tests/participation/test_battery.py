from dataclasses import dataclass

import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import Battery, ConstantSteps, Exponential, Habits, Work


@dataclass(frozen=True)
class Every:
    """Turns up a fixed time after it was free: for tables by hand."""

    mean_s: float

    def traits(self, rng, workers):
        return np.zeros(workers)

    def pulls(self, rng, traits, now_s):
        return now_s + self.mean_s


def visits(battery: Battery, horizon_s: float):
    """Idles 2 s, then 4 local steps of 1/4 s each: a cycle of 3 s."""
    habits = Habits(Every(2.0), Work(ConstantSteps(4), step_s=0.25), battery=battery)
    found = habits.visits(np.random.default_rng(0), 1, horizon_s)
    return list(zip(found.pull_s.tolist(), found.local_steps.tolist(), strict=True))


def test_visits_shorten_to_what_the_battery_pays_for():
    # Charge 6 - 4 = 2 at 2 s. 3 s later 2 + 1.5 = 3.5 pays for 3 steps, 0.75 s of work. 2.75 s
    # later 0.5 + 1.375 pays for one; then 0.875 + 1.125 for exactly two.
    battery = Battery(capacity=6, refill_per_s=0.5)
    assert visits(battery, 11.0) == [(2, 4), (5, 3), (7.75, 1), (10, 2)]


def test_visits_are_skipped_that_the_battery_cannot_pay_for():
    # Charge 2 at 2 s, 3.5 at 5 s: skipped. Idle again until 7 s: 4.5 pays.
    battery = Battery(capacity=6, refill_per_s=0.5, short="skip")
    assert visits(battery, 9.0) == [(2, 4), (7, 4)]


def test_a_strong_battery_changes_nothing():
    strong = Battery(capacity=100, refill_per_s=100)
    assert visits(strong, 9.5) == [(2, 4), (5, 4), (8, 4)]


def test_steps_have_a_cost_and_charge_a_ceiling():
    # Full at 10; 4 steps of 2 leave 2. It never holds more than 10, however long it waits.
    battery = Battery(capacity=10, refill_per_s=100, step_cost=2)
    assert battery.charged(np.array([2.0]), np.array([1e9])).tolist() == [10]
    steps = np.full(3, 4, np.int32)
    assert battery.affordable(np.array([1.0, 7.9, 8.0]), steps).tolist() == [0, 3, 4]


@pytest.mark.parametrize("short", ["shorten", "skip"])
def test_in_the_long_run_the_refill_pays_for_the_steps(short):
    battery = Battery(capacity=10, refill_per_s=0.1, short=short)
    habits = Habits(Exponential(5.0), Work(ConstantSteps(4), 0.25), battery=battery)
    found = habits.visits(np.random.default_rng(0), 100, 10_000.0)
    steps_per_s = found.local_steps.sum() / (100 * 10_000)
    assert 0.09 < steps_per_s <= 0.1 + 10 / 10_000


def test_a_battery_needs_idle_time():
    with pytest.raises(ConfigError, match="mean idle time is 0"):
        Habits(
            Exponential(0.0),
            Work(ConstantSteps(1), 1.0),
            battery=Battery(capacity=1, refill_per_s=1),
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"capacity": 0.5}, "capacity 0.5 cannot pay for one local step of cost 1.0"),
        ({"capacity": np.inf}, "must be finite"),
        ({"refill_per_s": 0.0}, "got 1.0 and 0.0"),
        ({"step_cost": 0.0}, "got 0.0 and 1.0"),
        ({"short": "wait"}, "'wait'"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Battery(**{"capacity": 10.0, "refill_per_s": 1.0, **settings})
