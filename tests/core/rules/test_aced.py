"""ACED, against numbers that were worked out by hand."""

import numpy as np
import pytest

from anarchic import Updates
from anarchic.core.rules import Ace, Aced
from anarchic.errors import ConfigError, UpdateRefused

from ..make import dump, fold, update


def test_a_worker_whose_update_is_too_late_is_left_out():
    rule = Aced(server_lr=0.1, population=2, limit=1)
    state, found = rule.init(np.zeros(1)), []
    arrivals = [
        ("a", 0, 2.0),  # b was not heard
        ("b", 0, 4.0),  # (2 + 4) / 2 = 3; from here on versions count
        ("a", 2, 6.0),  # b is one version late: (6 + 4) / 2 = 5
        ("a", 3, 2.0),  # two: 2 alone
        ("b", 2, 9.0),  # it comes two versions late: still 2 alone
        ("b", 2, 9.0),  # a is two versions late by now: nobody is left
    ]
    for worker, base, gradient in arrivals:
        state = rule.receive(state, update([gradient], worker, base))
        found.append(state.params[0])
    assert found == pytest.approx([0.0, -0.3, -0.8, -1.0, -1.2, -1.2])
    assert state.version == 6
    state = rule.receive(state, update([1.0], "b", 6))
    assert state.params[0] == pytest.approx(-1.3)


@pytest.mark.parametrize("limit", [None, 1000])
def test_without_a_limit_it_is_ace(limit):
    rng = np.random.default_rng(0)
    rules = Aced(population=3, limit=limit), Ace(population=3)
    states = [rule.init(np.zeros(2)) for rule in rules]
    for version in range(20):
        base = int(rng.integers(max(0, version - 4), version + 1))
        each = update(rng.normal(size=2), "abc"[rng.integers(3)], base)
        states = [rule.receive(state, each) for rule, state in zip(rules, states, strict=True)]
    assert states[0].params.tobytes() == states[1].params.tobytes()
    assert states[0].params.any()


def test_with_a_limit_of_0_and_nobody_late_only_the_arrival_counts():
    rule = Aced(server_lr=0.5, limit=0)
    pushed = [update([2.0], "a", 0), update([4.0], "b", 1), update([6.0], "a", 2)]
    assert fold(rule, rule.init(np.zeros(1)), pushed).params[0] == -6.0


def test_a_forgotten_worker_is_left_out():
    rule = Aced(limit=9)
    state = fold(rule, rule.init(np.zeros(1)), [update([2.0], "a", 0), update([4.0], "b", 1)])
    assert rule.forget(state, "a")
    assert (list(state.rows), list(state.bases)) == (["b"], ["b"])


def test_refusals():
    with pytest.raises(ConfigError, match="limit >= 0"):
        Aced(limit=-1)
    rule = Aced(population=1)
    state = rule.init(np.zeros(1))
    before = dump(state)
    with pytest.raises(UpdateRefused, match="one too many"):
        rule.receive_many(state, Updates.of([update([1.0], "a"), update([1.0], "b")]))
    assert dump(state) == before
