"""MimeLite, against numbers that were worked out by hand."""

import numpy as np
import pytest

from anarchic import AfaCd, MimeLite, SharedVectors
from anarchic.core.factory import RuleSettings, make_rule
from anarchic.core.local import take_local_steps
from anarchic.errors import ConfigError

from .make import update, vector


def visit(rule, momentum, gradients, lr=0.1):
    held = {"mime_first": vector(0.0), "momentum": vector(momentum)}
    return take_local_steps(
        rule,
        vector(3.0),
        held,
        lr=lr,
        gradient=lambda x, k: vector(gradients[k]),
        more=lambda done: done < len(gradients),
    )


def test_the_momentum_does_not_change_during_a_visit():
    found = visit(MimeLite(beta=0.75), 8.0, [4.0, 12.0])
    assert found.direction[0] == (1 + 6 + 3 + 6) / 2  # a quarter of g and three quarters of v
    assert found.sent["momentum"][0] == 0.25 * (4 - 8)  # by the gradient at the start alone
    assert found.kept == {}


def test_the_server_takes_the_mean_of_the_first_gradients():
    rule = SharedVectors(AfaCd(m=2), ("momentum",), population=2)
    state = rule.init(np.zeros(1))
    state.extras["momentum"][:] = 8.0
    for worker, first in (("a", 4.0), ("b", 6.0)):
        extras = {"momentum": 0.25 * (vector(first) - 8.0)}
        state = rule.receive(state, update([0.0], worker, extras=extras))
    assert state.extras["momentum"][0] == 0.75 * 8 + 0.25 * 5


def test_without_momentum_it_is_sgd():
    assert visit(MimeLite(beta=0.0), 8.0, [4.0, 12.0]).direction[0] == 8.0


def test_the_factory_divides_by_m_and_needs_no_number_of_workers():
    found = make_rule(RuleSettings(m=3, local_rule="mimelite"))
    assert (found.names, found.population) == (("momentum",), 3)
    assert make_rule(RuleSettings(m=3, local_rule="scaffold", workers=7)).population == 7


def test_beta_must_be_below_1():
    with pytest.raises(ConfigError, match="beta"):
        MimeLite(beta=1.0)
