"""Rennala SGD, against numbers that were worked out by hand."""

import numpy as np
import pytest

from anarchic.core.rules import AfaCd, AsyncSgd, Rennala
from anarchic.errors import ConfigError

from ..make import fold, update


def test_only_gradients_at_the_current_model_count():
    rule = Rennala(batch=2)
    state, found = rule.init(np.zeros(1)), []
    arrivals = [
        (0, 2.0),
        (1, 4.0),  # version 1 is still x_0: the step is (2 + 4) / 2
        (1, 100.0),  # of x_0, and too late
        (2, 1.0),
        (3, 3.0),  # (1 + 3) / 2
    ]
    for base, gradient in arrivals:
        state = rule.receive(state, update([gradient], base_version=base))
        found.append(state.params[0])
    assert found == [0.0, -3.0, -3.0, -3.0, -5.0]
    assert state.version == 5


def test_with_nobody_late_it_is_afa_cd():
    rng = np.random.default_rng(0)
    rennala, afa = Rennala(batch=3, server_lr=0.3), AfaCd(m=3, server_lr=0.3)
    states = rennala.init(np.ones(2)), afa.init(np.ones(2))
    for index in range(12):
        gradient, rate = rng.normal(size=2), rng.uniform(0.1, 0.5)
        pairs = (rennala, states[0], index), (afa, states[1], index // 3)
        states = [r.receive(s, update(gradient, "a", base, 1, rate)) for r, s, base in pairs]
    assert states[0].params.tobytes() == states[1].params.tobytes()


def test_a_batch_of_one_is_sgd_that_refuses_everything_late():
    rennala, sgd = Rennala(batch=1), AsyncSgd()
    pushed = [update([1.0], "a", 0), update([5.0], "b", 0), update([2.0], "a", 2)]
    state = fold(rennala, rennala.init(np.zeros(1)), pushed)
    alone = [update([1.0], "a", 0), update([2.0], "a", 1)]
    assert state.params[0] == fold(sgd, sgd.init(np.zeros(1)), alone).params[0] == -3.0


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"batch": 1.5}, {"server_lr": 0.0}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match="Rennala needs"):
        Rennala(**wrong)
