"""Ringleader ASGD, against numbers that were worked out by hand."""

import numpy as np
import pytest

from anarchic.core.rules import AfaCd, Ringleader
from anarchic.core.saving import pack, unpack
from anarchic.errors import ConfigError

from ..make import update


def arrivals(rule, state, pushed):
    found = []
    for worker, gradient in pushed:
        state = rule.receive(state, update([gradient], worker, state.version))
        found.append(state.params[0])
    return state, found


def test_a_round_by_hand():
    rule = Ringleader(population=2)
    state, found = arrivals(
        rule,
        rule.init(np.zeros(1)),
        [
            ("a", 1.0),
            ("a", 3.0),
            ("b", 4.0),  # phase 2: (mean(1, 3) + 4) / 2 = 3, not 8 / 3
            ("b", 10.0),  # b has led its step: this is for the next round
            ("a", 5.0),  # (mean(1, 3, 5) + 4) / 2 = 3.5, and the round is over
            ("b", 2.0),  # phase 1 again: mean(10, 2) = 6
            ("a", 2.0),  # (2 + 6) / 2 = 4
            ("b", 12.0),  # (2 + mean(10, 2, 12)) / 2 = 5
        ],
    )
    assert found == pytest.approx([0, 0, -3, -3, -6.5, -6.5, -10.5, -15.5])
    assert (state.version, state.round) == (8, 2)


def test_with_one_worker_it_is_sgd():
    rng = np.random.default_rng(0)
    rules = Ringleader(server_lr=0.3, population=1), AfaCd(m=1, server_lr=0.3)
    states = [rule.init(np.zeros(2)) for rule in rules]
    for _ in range(9):
        each = update(rng.normal(size=2), local_lr=rng.uniform(0.1, 0.5))
        states = [rule.receive(state, each) for rule, state in zip(rules, states, strict=True)]
    np.testing.assert_allclose(states[0].params, states[1].params, rtol=1e-12)


def test_it_is_the_algorithm_written_out():
    """Against lists of gradients, as the paper has them; each round has exactly M steps."""
    M, rng, rule = 4, np.random.default_rng(1), Ringleader(server_lr=0.1, population=4)
    state, x = rule.init(np.zeros(1)), 0.0
    table, following, served = [[] for _ in range(M)], [[] for _ in range(M)], None
    rounds = steps = 0
    for version in range(400):
        i, g = int(rng.choice(M, p=[0.6, 0.2, 0.1, 0.1])), float(rng.normal())
        state = rule.receive(state, update([g], str(i), version))
        leads = False
        if served is None:
            table[i].append(g)
            leads = all(table)
            served = {i} if leads else None
        elif i not in served:
            table[i].append(g)
            served.add(i)
            leads = True
        else:
            following[i].append(g)
        if leads:
            x, steps = x - 0.1 * np.mean([np.mean(each) for each in table]), steps + 1
        if served is not None and len(served) == M:
            table, following, served = following, [[] for _ in range(M)], None
            rounds += 1
        assert state.params[0] == pytest.approx(x)
    assert (state.round, steps // M) == (rounds, rounds)
    assert rounds > 10


def test_nobody_waits_for_workers_that_were_forgotten():
    rule = Ringleader(population=3)
    state, found = arrivals(rule, rule.init(np.zeros(1)), [("a", 2.0), ("b", 4.0)])
    assert found == [0.0, 0.0]  # c was not heard
    assert rule.forget(state, "c")
    assert not rule.forget(state, "c")
    state = unpack(rule.init(np.zeros(1)), *pack(state))
    state, found = arrivals(rule, state, [("a", 2.0)])
    assert found == [-3.0]
    assert rule.forget(state, "b")  # before it has led its step
    state, found = arrivals(rule, state, [("a", 8.0), ("a", 8.0)])
    assert found == pytest.approx([-3.0, -11.0])  # the next round, of a alone


def test_settings_that_cannot_be_are_refused():
    for wrong in ({"population": 0}, {"server_lr": 0.0}):
        with pytest.raises(ConfigError, match="Ringleader needs"):
            Ringleader(**wrong)


def test_a_worker_that_stays_away_holds_nobody_up_for_longer_than_expire_after():
    rule = Ringleader(expire_after=2)
    pushed = [("a", 1.0), ("b", 3.0), ("a", 5.0)]  # a round of a alone, then phase 1 of both
    state, found = arrivals(rule, rule.init(np.zeros(1)), pushed)
    assert found == [-1.0, -1.0, -1.0 - 4.0]
    # b, whose turn it is, was heard at version 1 and never again. At version 4 it is forgotten:
    # the round is over, and the next one begins with what a has sent for it.
    assert arrivals(rule, state, [("a", 7.0), ("a", 9.0), ("a", 11.0)])[1] == [-5.0, -5.0, -14.0]
    assert Ringleader().waits
    assert rule.waits is None
