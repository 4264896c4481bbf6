import pytest

from anarchic import FedBuff
from anarchic.errors import ConfigError

from ..make import fold, update, vector


def test_a_fresh_update_weighs_one():
    rule = FedBuff(m=1)
    state = rule.receive(rule.init(vector(10.0)), update([1.0], local_steps=4, local_lr=0.5))
    assert state.params[0] == 8.0  # 10 - 4 * 0.5 * 1


def test_late_updates_shrink_the_step_because_the_mean_is_over_the_buffer():
    rule = FedBuff(m=2)
    state = rule.init(vector(0.0))
    state = fold(rule, state, [update([0.0], base_version=v // 2) for v in range(6)])  # version 3
    # staleness 0 and 3: weights 1 and 1 / sqrt(4), divided by 2 and not by their sum
    state = fold(rule, state, [update([8.0], base_version=3), update([8.0], base_version=0)])
    assert state.params[0] == -6.0


def test_the_delta_counts_from_the_pulled_version():
    """Base minus returned: what others did meanwhile is not undone."""
    rule = FedBuff(m=1, power=0.0)
    state = rule.receive(rule.init(vector(10.0)), update([4.0]))  # to 6
    state = rule.receive(state, update([1.0], base_version=0))  # the worker went from 10 to 9
    assert state.params[0] == 5.0


@pytest.mark.parametrize("power", [-1.0, float("nan")])
def test_power_must_not_be_negative(power):
    with pytest.raises(ConfigError, match="power"):
        FedBuff(m=1, power=power)
