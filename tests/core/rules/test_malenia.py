"""Malenia SGD, against numbers that were worked out by hand."""

import numpy as np
import pytest

from anarchic.core.rules import AfaCd, Malenia
from anarchic.errors import ConfigError

from ..make import fold, update


def test_every_workers_mean_counts_the_same():
    rule = Malenia(batch=2, population=2)
    # (mean(1, 3) + 4) / 2 = 3, not (1 + 3 + 4) / 3
    pushed = [update([1.0], "a", 0), update([3.0], "a", 1), update([4.0], "b", 2)]
    state = fold(rule, rule.init(np.zeros(1)), pushed)
    assert (state.version, state.params[0]) == (3, -3.0)


def test_it_waits_until_the_harmonic_mean_is_large_enough():
    rule = Malenia(batch=3, population=2)  # S/M = 1.5
    state, found = rule.init(np.zeros(1)), []
    # b = (1,), (1, 1): 1; (2, 1): 2 / (1/2 + 1) = 1.33; (3, 1): 2 / (1/3 + 1) = 1.5
    for worker, gradient in (("a", 2.0), ("b", 4.0), ("a", 4.0), ("a", 6.0)):
        state = rule.receive(state, update([gradient], worker, state.version))
        found.append(state.params[0])
    assert found == [0.0, 0.0, 0.0, -4.0]


def test_what_started_from_an_older_model_counts_for_nothing():
    rule = Malenia(batch=1, population=2)
    state = fold(rule, rule.init(np.zeros(1)), [update([2.0], "a", 0), update([4.0], "b", 0)])
    assert state.params[0] == -3.0
    late = [update([100.0], "a", 1), update([1.0], "b", 2)]
    state = fold(rule, state, late)
    assert state.params[0] == -3.0  # a is still missing
    assert rule.receive(state, update([3.0], "a", 3)).params[0] == -5.0


def test_if_nobody_sends_twice_it_is_afa_cd():
    rng = np.random.default_rng(0)
    malenia, afa = Malenia(batch=3, population=3), AfaCd(m=3)
    states = malenia.init(np.ones(2)), afa.init(np.ones(2))
    for index in range(12):
        gradient, worker = rng.normal(size=2), "abc"[index % 3]
        pairs = (malenia, states[0], index), (afa, states[1], index // 3)
        states = [r.receive(s, update(gradient, worker, base)) for r, s, base in pairs]
    np.testing.assert_allclose(states[0].params, states[1].params, rtol=1e-12)


def test_nobody_waits_for_a_worker_that_was_forgotten():
    rule = Malenia(batch=1, population=3)
    state = fold(rule, rule.init(np.zeros(1)), [update([2.0], "a", 0), update([4.0], "b", 0)])
    assert state.params[0] == 0.0  # c was not heard
    assert rule.forget(state, "c")
    assert rule.forget(state, "b")
    assert rule.receive(state, update([4.0], "a", 0)).params[0] == -3.0  # (2 + 4) / 2 of a alone


def test_a_worker_that_stays_away_holds_nobody_up_for_longer_than_expire_after():
    rule = Malenia(batch=1, population=3, expire_after=2)
    state, found = rule.init(np.zeros(1)), []
    # c was never heard: a and b wait for it during the versions 0, 1 and 2
    for worker, gradient in (("a", 2.0), ("b", 4.0), ("a", 2.0), ("b", 4.0)):
        state = rule.receive(state, update([gradient], worker, state.version))
        found.append(float(state.params[0]))
    assert found == [0.0, 0.0, 0.0, -3.0]
    # c is heard at version 4 and never again: at version 7 it is forgotten
    for worker, gradient in (("c", 90.0), ("a", 1.0), ("b", 1.0)):
        state = rule.receive(state, update([gradient], worker, state.version))
    assert state.params[0] == -3.0 - 92 / 3  # the three of them
    for worker in "ab":
        state = rule.receive(state, update([1.0], worker, state.version))
    assert state.params[0] == pytest.approx(-3.0 - 92 / 3 - 1.0)  # without c
    # Whoever is late is not silent.
    late = Malenia(batch=1, expire_after=2)
    state = late.init(np.zeros(1))
    for worker, base in (("a", 0), ("b", 0), ("a", 2), ("b", 0), ("a", 4), ("b", 0)):
        state = late.receive(state, update([1.0], worker, base))
    assert "b" in state.sent


def test_settings_that_cannot_be_are_refused():
    for wrong in ({"batch": 0}, {"population": 0}, {"server_lr": -1.0}, {"expire_after": 0}):
        with pytest.raises(ConfigError, match="Malenia needs"):
            Malenia(**wrong)
