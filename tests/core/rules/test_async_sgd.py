"""Asynchronous SGD with rates that depend on the delay, against numbers worked out by hand."""

import numpy as np
import pytest

from anarchic.core.rules import AfaCd, AsyncSgd
from anarchic.errors import ConfigError

from ..make import update


@pytest.mark.parametrize(
    ("form", "staleness", "rate"),
    [
        ("ratio", 8, 0.05),  # 0.1 * 4 / 8
        ("ratio", 4, 0.1),
        ("threshold", 8, 0.0125),  # 0.1 / 8
        ("threshold", 4, 0.1),
        ("threshold", 5, 0.02),
    ],
)
def test_the_rate_falls_with_the_delay(form, staleness, rate):
    rule = AsyncSgd(server_lr=0.1, limit=4, form=form)
    state = rule.init(np.zeros(1))
    for version in range(staleness):
        state = rule.receive(state, update([0.0], base_version=version))
    state = rule.receive(state, update([1.0], base_version=0))
    assert -state.params[0] == pytest.approx(rate)


def test_without_a_limit_it_is_afa_cd_of_single_updates():
    rules = AsyncSgd(server_lr=0.3), AfaCd(m=1, server_lr=0.3)
    states = [rule.init(np.zeros(1)) for rule in rules]
    for value in (1.0, 5.0, -2.0):
        each = update([value], base_version=0)
        states = [rule.receive(state, each) for rule, state in zip(rules, states, strict=True)]
    assert states[0].params.tobytes() == states[1].params.tobytes()


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="limit >= 1"):
        AsyncSgd(limit=0)
