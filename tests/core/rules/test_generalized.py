"""Generalized AsyncSGD, against numbers that were worked out by hand."""

import numpy as np
import pytest

from anarchic.core.rules import AsyncSgd, GeneralizedAsyncSgd
from anarchic.errors import ConfigError

from ..make import fold, update


@pytest.mark.parametrize("given", [{"a": 0.5, "b": 0.1}, "a:0.5, b:0.1"])
def test_whoever_is_picked_often_weighs_less(given):
    rule = GeneralizedAsyncSgd(server_lr=0.1, population=4, probabilities=given)
    pushed = [update([2.0], "a"), update([2.0], "b"), update([2.0], "c")]
    found = [rule.receive(rule.init(np.zeros(1)), each).params[0] for each in pushed]
    # 0.1 / (4 * 0.5) * 2, 0.1 / (4 * 0.1) * 2, and 0.1 * 2 for a worker that is not named
    assert found == pytest.approx([-0.1, -0.5, -0.2])


def test_with_equal_probabilities_it_is_async_sgd():
    rng = np.random.default_rng(0)
    equal = GeneralizedAsyncSgd(server_lr=0.3, probabilities=dict.fromkeys("abcd", 0.25))
    rules = equal, GeneralizedAsyncSgd(server_lr=0.3), AsyncSgd(server_lr=0.3)
    states = [rule.init(np.zeros(2)) for rule in rules]
    for _ in range(9):
        each = update(rng.normal(size=2), "abcd"[rng.integers(4)], local_lr=0.5)
        states = [rule.receive(state, each) for rule, state in zip(rules, states, strict=True)]
    assert len({state.params.tobytes() for state in states}) == 1


def test_in_the_mean_each_worker_counts_the_same():
    p = {"a": 0.7, "b": 0.2, "c": 0.1}
    rule = GeneralizedAsyncSgd(probabilities=p)
    moved = {w: -rule.receive(rule.init(np.zeros(1)), update([1.0], w)).params[0] for w in p}
    assert [p[w] * moved[w] for w in p] == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize(
    "wrong", [{"a": 0.0}, {"a": 0.7, "b": 0.7}, "a=0.5", "a", ":0.5", "a:x", {"a": None}, 3]
)
def test_probabilities_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match="probabilities above 0"):
        GeneralizedAsyncSgd(probabilities=wrong)


def test_there_are_at_least_as_many_workers_as_are_named():
    with pytest.raises(ConfigError, match="population >= 2"):
        GeneralizedAsyncSgd(population=1, probabilities="a:0.5,b:0.5")
    rule = GeneralizedAsyncSgd(probabilities="a:0.5,b:0.5")
    assert fold(rule, rule.init(np.zeros(1)), [update([1.0], "a")]).params[0] == -1.0
