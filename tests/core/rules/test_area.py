"""AREA, against numbers that were worked out by hand."""

import numpy as np
import pytest

from anarchic import Updates
from anarchic.core.rules import Area, FedAvg
from anarchic.errors import ConfigError, UpdateRefused

from ..make import dump, fold, update


def test_the_model_is_the_mean_of_the_last_end_models():
    rule = Area(population=2)
    state = rule.init(np.zeros(1))
    found = []
    # ends at -2 (from 0), at -4 (from 0), at -5 (from version 1, which is -1)
    for worker, base, displacement in (("a", 0, 2.0), ("b", 0, 4.0), ("a", 1, 4.0)):
        state = rule.receive(state, update([displacement], worker, base))
        found.append(state.params[0])
    assert found == pytest.approx([-1.0, -3.0, -4.5])


def test_m_arrivals_are_one_step_and_are_not_divided_by_m():
    rule = Area(m=2, population=2)
    state = fold(rule, rule.init(np.zeros(1)), [update([2.0], "a"), update([4.0], "b")])
    assert (state.version, state.params[0]) == (1, pytest.approx(-3.0))


def test_whoever_reports_often_weighs_no_more():
    rule = Area(population=2)
    state = rule.receive(rule.init(np.zeros(1)), update([4.0], "b"))
    for version in range(1, 6):
        state = rule.receive(state, update([0.0], "a", base_version=0 * version))
    assert state.params[0] == pytest.approx(-2.0)  # a ends at 0 each time


def test_with_everybody_in_every_round_it_is_fedavg():
    rng = np.random.default_rng(0)
    rules = Area(m=3, population=3), FedAvg(m=3)
    states = [rule.init(np.ones(2)) for rule in rules]
    for version in range(4):
        for worker in "abc":
            each = update(rng.normal(size=2), worker, version, local_steps=2, local_lr=0.1)
            states = [rule.receive(s, each) for rule, s in zip(rules, states, strict=True)]
    np.testing.assert_allclose(states[0].params, states[1].params, rtol=1e-12)


def test_a_forgotten_worker_counts_as_one_that_was_not_heard():
    rule = Area(population=2)
    state = fold(rule, rule.init(np.ones(1)), [update([2.0], "a"), update([4.0], "b")])
    assert rule.forget(state, "b")
    state = rule.receive(state, update([2.0], "a", base_version=0))  # ends at -1
    assert state.params[0] == pytest.approx((-1 + 1) / 2)


def test_of_an_older_version_than_those_kept_the_oldest_is_taken():
    rule = Area(population=2, history=2)
    state = fold(rule, rule.init(np.zeros(1)), [update([1.0], "a")] * 2)  # to -0.5, and stays
    state = rule.receive(state, update([1.0], "b", base_version=0))  # ends at -1.5, not at -1
    assert state.params[0] == pytest.approx((-1 - 1.5) / 2)
    with pytest.raises(ConfigError, match="history >= 1"):
        Area(history=0)


def test_a_block_with_one_worker_too_many_changes_nothing():
    rule = Area(population=1)
    state = rule.init(np.zeros(1))
    before = dump(state)
    with pytest.raises(UpdateRefused, match="would be one too many"):
        rule.receive_many(state, Updates.of([update([1.0], "a"), update([1.0], "b")]))
    assert dump(state) == before
