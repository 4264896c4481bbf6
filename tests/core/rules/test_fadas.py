"""FADAS, against numbers that were worked out by hand."""

import numpy as np
import pytest

from anarchic.core.rules import Fadas, FedBuff
from anarchic.core.steps import AmsGradStep
from anarchic.errors import ConfigError

from ..make import update


def moved(rule, *pushed):
    state, found = rule.init(np.zeros(1)), []
    for direction, base in pushed:
        before = state.params[0]
        state = rule.receive(state, update([direction], base_version=base))
        found.append(float(before - state.params[0]))
    return found


def test_fadas_keeps_the_largest_second_moment():
    # m 0.2 and 0.18, v 0.04 and 0.0396, of which 0.04 is kept
    assert moved(Fadas(m=1), (2.0, 0), (0.0, 1)) == pytest.approx([1.0, 0.9], rel=1e-6)


def test_the_authors_program_corrects_the_bias():
    found = moved(Fadas(m=1, form="code"), (2.0, 0), (0.0, 1))
    assert found == pytest.approx([1.0, 0.668], abs=5e-4)


@pytest.mark.parametrize(
    ("form", "server_lr", "rate"),
    [("paper", 1.0, 1 / 4), ("paper", 0.1, 0.1), ("code", 1.0, 1 / 4), ("code", 0.1, 0.1 / 4)],
)
def test_the_rate_falls_with_the_largest_staleness(form, server_lr, rate):
    rule = Fadas(m=2, server_lr=server_lr, threshold=1, form=form)
    assert rule.rate(4, version=0) == pytest.approx(rate)
    assert rule.rate(1, version=0) == pytest.approx(server_lr)


def test_only_the_buffer_of_the_step_counts():
    pushed = [(1.0, 0), (1.0, 1), (1.0, 0), (1.0, 3)]
    adaptive, plain = moved(Fadas(m=1, threshold=1), *pushed), moved(Fadas(m=1), *pushed)
    shares = [ours / theirs for ours, theirs in zip(adaptive, plain, strict=True)]
    assert shares == pytest.approx([1.0, 1.0, 0.5, 1.0])


def test_without_a_threshold_it_is_a_buffer_with_amsgrad():
    pushed = [(1.0, 0), (3.0, 0), (2.0, 0), (5.0, 1)]
    buffered = FedBuff(m=2, power=0.0, step=AmsGradStep())
    assert moved(Fadas(m=2), *pushed) == moved(buffered, *pushed)


def test_a_threshold_that_is_never_reached_changes_nothing():
    pushed = [(1.0, 0), (3.0, 0), (2.0, 0)]
    assert moved(Fadas(m=1, threshold=10), *pushed) == moved(Fadas(m=1), *pushed)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="threshold >= 0"):
        Fadas(m=1, threshold=-1)
    with pytest.raises(ConfigError, match="form"):
        Fadas(m=1, form="other")
