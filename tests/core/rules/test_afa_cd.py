import numpy as np
import pytest

from anarchic import AfaCd
from anarchic.errors import ConfigError

from ..make import fold, update, vector


def test_afa_cd_steps_along_the_mean_of_m_updates():
    rule = AfaCd(m=2, server_lr=1.0)
    state = rule.receive(rule.init(vector(10.0)), update([2.0], local_lr=0.5))
    assert (state.version, state.params[0]) == (0, 10.0)  # one update: not yet
    state = rule.receive(state, update([4.0], local_lr=0.5))
    assert (state.version, state.params[0]) == (1, 8.5)  # 10 - (1 + 2) / 2


def test_a_worker_with_a_larger_rate_weighs_more():
    rule = AfaCd(m=2, server_lr=4.0)
    updates = [update([1.0], local_lr=0.5), update([-1.0], local_lr=0.25)]
    state = fold(rule, rule.init(vector(0.0)), updates)
    assert state.params[0] == -0.5  # 0 - 4 * (0.5 - 0.25) / 2


def test_neither_the_number_of_local_steps_nor_lateness_nor_samples_matter():
    rule = AfaCd(m=1)
    state = rule.receive(rule.init(vector(0.0)), update([1.0], local_steps=7, samples=9))
    state = rule.receive(state, update([1.0], base_version=0))
    assert state.params[0] == -2.0


def test_one_worker_may_fill_the_buffer():
    rule = AfaCd(m=3)
    state = fold(rule, rule.init(vector(0.0)), [update([3.0], worker="a")] * 3)
    assert (state.version, state.params[0]) == (1, -3.0)


def test_a_flush_divides_by_what_is_there():
    rule = AfaCd(m=100)
    state = fold(rule, rule.init(vector(10.0)), [update([2.0]), update([4.0])])
    assert rule.remaining(state) == 98
    state = rule.flush(state)
    assert (state.version, state.params[0], rule.remaining(state)) == (1, 7.0, 100)


@pytest.mark.parametrize("m", [0, -1, 2.5, float("nan")])
def test_m_must_be_a_positive_whole_number(m):
    with pytest.raises(ConfigError, match="AfaCd needs a whole number m"):
        AfaCd(m=m)


@pytest.mark.parametrize("server_lr", [0.0, -1.0, float("inf"), float("nan")])
def test_server_lr_must_be_positive_and_finite(server_lr):
    with pytest.raises(ConfigError, match="server_lr"):
        AfaCd(m=1, server_lr=server_lr)


def test_a_numpy_server_lr_does_not_widen_the_model():
    rule = AfaCd(m=1, server_lr=np.float64(0.5))
    state = rule.receive(rule.init(vector(1.0, dtype="f4")), update([1.0], dtype="f4"))
    assert (state.params.dtype, state.params[0]) == (np.float32, 0.5)
