"""MIFA and ACE, against numbers that were worked out by hand."""

import numpy as np
import pytest

from anarchic.core.rules import Ace, AfaCs, FedAvg, Mifa
from anarchic.core.saving import pack, unpack

from ..make import fold, update


def test_mifa_steps_along_the_mean_of_all_displacements():
    rule = Mifa(m=2, population=2)
    pushed = [update([u / 2], w, local_steps=2, local_lr=0.1) for w, u in (("a", 2.0), ("b", 4.0))]
    state = fold(rule, rule.init(np.zeros(1)), pushed)
    assert state.params[0] == pytest.approx(-0.3)  # -0.1 * (2 + 4) / 2
    state = fold(rule, state, [update([3.0], "a", 1, local_steps=2, local_lr=0.1)] * 2)
    assert state.params[0] == pytest.approx(-0.3 - 0.1 * (6 + 4) / 2)  # b's last counts again


def test_mifa_waits_until_everybody_was_heard():
    rule = Mifa(m=1, population=2)
    state = rule.receive(rule.init(np.zeros(1)), update([2.0], "a"))
    assert (state.version, state.params[0]) == (1, 0.0)
    state = rule.receive(state, update([4.0], "b"))
    assert (state.version, state.params[0]) == (2, -3.0)
    hasty = Mifa(m=1, population=2, wait=False)
    assert hasty.receive(hasty.init(np.zeros(1)), update([2.0], "a")).params[0] == -1.0


@pytest.mark.parametrize("rule", [Mifa(m=1, population=2), Ace(population=2)])
def test_a_worker_that_is_forgotten_stops_nothing_once_all_were_heard(rule):
    state = fold(rule, rule.init(np.zeros(1)), [update([2.0], "a"), update([4.0], "b")])
    assert state.params[0] == -3.0  # (2 + 4) / 2
    assert rule.forget(state, "b")
    assert not rule.forget(state, "b")
    state = rule.receive(state, update([6.0], "a"))
    assert (state.version, state.params[0]) == (3, -6.0)  # 6 / 2: b counts as zero


@pytest.mark.parametrize("rule", [Mifa(m=1, population=3), Ace(population=3)])
def test_nobody_waits_for_workers_that_were_forgotten_before_all_were_heard(rule):
    """Heard or not; each counts once, also if it comes again; and a saved state knows them."""
    state = fold(rule, rule.init(np.zeros(1)), [update([2.0], "a"), update([4.0], "b")])
    assert rule.forget(state, "b")
    state = rule.receive(state, update([4.0], "b"))  # it is back
    assert state.params[0] == 0.0  # c was not heard
    state = unpack(rule.init(np.zeros(1)), *pack(state))
    assert rule.forget(state, "c")  # revoked before its first update
    assert not rule.forget(state, "c")
    state = rule.receive(state, update([1.0], "a"))
    assert state.params[0] == pytest.approx(-5 / 3)  # (1 + 4 + 0) / 3


def test_a_cap_below_the_population_does_not_wait_for_ever():
    rule = Mifa(m=1, population=3, cap=2)
    each = [update([2.0], "a"), update([4.0], "b"), update([6.0], "c")]
    state = fold(rule, rule.init(np.zeros(1)), each)
    assert state.params[0] == pytest.approx(-10 / 3)  # a was forgotten for c's sake


def test_mifa_is_afa_cs_with_the_rate_times_the_steps():
    rng = np.random.default_rng(0)
    rules = Mifa(m=2), AfaCs(m=2, server_lr=3.0)
    states = [rule.init(np.zeros(2)) for rule in rules]
    for _ in range(9):
        each = update(rng.normal(size=2), "abc"[rng.integers(3)], local_steps=3, local_lr=0.1)
        states = [rule.receive(state, each) for rule, state in zip(rules, states, strict=True)]
    np.testing.assert_allclose(states[0].params, states[1].params, rtol=1e-12)


def test_mifa_with_everybody_in_every_round_is_fedavg():
    rng = np.random.default_rng(0)
    rules = Mifa(m=2, population=2), FedAvg(m=2)
    states = [rule.init(np.zeros(2)) for rule in rules]
    for version in range(3):
        for worker in "ab":
            each = update(rng.normal(size=2), worker, version, local_steps=2, local_lr=0.1)
            states = [rule.receive(state, each) for rule, state in zip(rules, states, strict=True)]
    np.testing.assert_allclose(states[0].params, states[1].params, rtol=1e-12)


def test_ace_steps_at_every_arrival_once_all_were_heard():
    rule = Ace(server_lr=0.1, population=2)
    state = fold(rule, rule.init(np.zeros(1)), [update([2.0], "a"), update([4.0], "b")])
    assert state.params[0] == pytest.approx(-0.3)
    state = rule.receive(state, update([6.0], "a"))
    assert state.params[0] == pytest.approx(-0.8)  # u = (6 + 4) / 2


def test_ace_is_afa_cs_with_m_1_once_all_were_heard():
    rng = np.random.default_rng(3)
    rules = Ace(population=3), AfaCs(m=1, population=3)
    states = [rule.init(np.zeros(2)) for rule in rules]
    changes = []
    for index in range(9):
        each = update(rng.normal(size=2), "abc"[index % 3])
        before = [state.params for state in states]
        states = [rule.receive(state, each) for rule, state in zip(rules, states, strict=True)]
        changes.append([s.params - b for s, b in zip(states, before, strict=True)])
    for ours, theirs in changes[2:]:
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert all(not ours.any() for ours, _ in changes[:2])
