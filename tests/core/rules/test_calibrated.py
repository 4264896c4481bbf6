"""CA2FL, FedVARP and FedStale, against numbers that were worked out by hand."""

import numpy as np
import pytest

from anarchic import Guard
from anarchic.core.rules import AfaCs, Ca2fl, FedAvg, FedBuff, FedStale, FedVarp
from anarchic.errors import ConfigError, StaleUpdate

from ..make import fold, update


def brought(*pairs, base=0):
    return [update([value], worker, base) for worker, value in pairs]


def steps(rule, updates):
    """The parameter after every update."""
    state, found = rule.init(np.zeros(1)), []
    for each in updates:
        state = rule.receive(state, each)
        found.append(float(state.params[0]))
    return found


def test_ca2fl_steps_along_the_cached_mean_and_the_correction():
    # v = 0 + 2, then 2/2 + 4, then (2 + 4)/2 + (6 - 2)
    found = steps(Ca2fl(m=1, population=2), brought(("a", 2.0), ("b", 4.0), ("a", 6.0)))
    assert found == [-2.0, -7.0, -14.0]


def test_ca2fl_divides_corrections_by_m_and_the_cache_by_the_population():
    rule = Ca2fl(m=2, server_lr=0.5, population=4)
    state = fold(rule, rule.init(np.zeros(1)), brought(("a", 2.0), ("b", 4.0)))
    assert state.params[0] == -0.5 * 3.0
    state = fold(rule, state, brought(("a", 6.0), ("c", 10.0)))
    assert state.params[0] == -1.5 - 0.5 * (6 / 4 + ((6 - 2) + (10 - 0)) / 2)


def test_a_worker_twice_in_a_buffer_is_corrected_by_its_own_first_update():
    # c = (2 - 0) + (6 - 2), so that v = 0 + 6 / 2
    assert steps(Ca2fl(m=2, population=2), brought(("a", 2.0), ("a", 6.0)))[-1] == -3.0


def test_a_displacement_is_rate_times_steps_times_direction():
    rule = Ca2fl(m=1, population=2)
    state = rule.receive(rule.init(np.zeros(1)), update([2.0], local_steps=3, local_lr=0.5))
    assert state.params[0] == -3.0


def test_with_everybody_in_every_step_it_is_fedavg():
    rng = np.random.default_rng(0)
    calibrated, plain = Ca2fl(m=3, population=3), FedAvg(m=3)
    states = [rule.init(np.zeros(2)) for rule in (calibrated, plain)]
    for version in range(4):
        for worker in "abc":
            each = update(rng.normal(size=2), worker, version, local_steps=2, local_lr=0.1)
            states = [
                rule.receive(state, each)
                for rule, state in zip((calibrated, plain), states, strict=True)
            ]
    np.testing.assert_allclose(states[0].params, states[1].params, rtol=1e-12)


def test_its_first_step_is_that_of_fedbuff_without_discount():
    updates = brought(("a", 2.0), ("b", 5.0))
    assert steps(Ca2fl(m=2), updates)[-1] == steps(FedBuff(m=2, power=0.0), updates)[-1]


@pytest.mark.parametrize(("beta", "change"), [(0.0, 6.0), (0.5, 6.5), (1.0, 7.0)])
def test_fedstale_counts_the_memory_by_beta(beta, change):
    rule = FedStale(m=2, population=2, beta=beta)
    state = fold(rule, rule.init(np.zeros(1)), brought(("a", 2.0), ("b", 4.0)))
    before = state.params[0]
    # A round of one, as a server that steps by a timer makes it: h = (2, 4), worker a brings 6.
    state = rule.flush(rule.receive(state, update([6.0], "a", 1)))
    assert before - state.params[0] == pytest.approx(change)


def test_fedvarp_is_fedstale_with_the_whole_memory_and_ca2fl_without_delay():
    rng = np.random.default_rng(1)
    rules = FedVarp(m=2, population=4), FedStale(m=2, population=4, beta=1.0), Ca2fl(2, 1.0, 4)
    states = [rule.init(np.zeros(3)) for rule in rules]
    for index in range(12):
        each = update(rng.normal(size=3), "abcd"[rng.integers(4)], index // 2)
        states = [rule.receive(state, each) for rule, state in zip(rules, states, strict=True)]
    assert states[0].params.tobytes() == states[1].params.tobytes() == states[2].params.tobytes()


def test_without_memory_fedstale_is_fedavg():
    rng = np.random.default_rng(2)
    rules = FedStale(m=2, population=4, beta=0.0), FedAvg(m=2)
    states = [rule.init(np.zeros(3)) for rule in rules]
    for index in range(8):
        each = update(rng.normal(size=3), "abcd"[rng.integers(4)], index // 2)
        states = [rule.receive(state, each) for rule, state in zip(rules, states, strict=True)]
    np.testing.assert_allclose(states[0].params, states[1].params, rtol=1e-12)


@pytest.mark.parametrize("rule", [FedVarp(m=1), FedStale(m=1)])
def test_synchronous_rules_refuse_late_updates(rule):
    state = rule.receive(rule.init(np.zeros(1)), update([1.0]))
    with pytest.raises(StaleUpdate):
        rule.receive(state, update([1.0], base_version=0))


def test_a_forgotten_worker_is_in_no_later_step():
    rule = Ca2fl(m=1, population=4)
    state = fold(rule, rule.init(np.zeros(1)), brought(("a", 100.0), ("b", 4.0)))
    assert rule.forget(state, "a")
    assert not rule.forget(state, "a")
    before = state.params[0]
    state = rule.receive(state, update([8.0], "b"))
    assert before - state.params[0] == 4.0 / 4 + (8.0 - 4.0)


def test_a_worker_that_is_forgotten_in_the_middle_of_a_step_counts_as_zero():
    rule = Ca2fl(m=2)
    state = rule.receive(rule.init(np.zeros(1)), update([6.0], "a"))
    assert rule.forget(state, "a")
    assert rule.receive(state, update([4.0], "b")).params[0] == -2.0  # (0 + 4) / 2
    known = Ca2fl(m=2, population=3)
    state = fold(known, known.init(np.zeros(1)), brought(("a", 1.0), ("b", 1.0)))
    state = known.receive(state, update([9.0], "a", 1))
    assert known.forget(state, "a")
    before = state.params[0]
    state = known.receive(state, update([1.0], "b", 1))
    assert before - state.params[0] == pytest.approx(2 / 3 + ((0 - 1) + (1 - 1)) / 2)


def test_a_guard_that_forgets_does_not_turn_the_step_around():
    rule = Guard(Ca2fl(m=10), 30)
    state = rule.receive(rule.init(np.zeros(1)), update([25.0], "bad"))
    state = fold(rule, state, [update([0.01], f"w{n}") for n in range(9)])
    assert -2.6 < state.params[0] < 0


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="0 <= beta <= 1, got beta"):
        FedStale(m=1, beta=1.5)
    with pytest.raises(ConfigError, match="Ca2fl needs population >= 1"):
        Ca2fl(m=1, population=0)


def test_the_mean_of_the_table_alone_is_afa_cs():
    """With one local step and the same updates the two differ by the correction only."""
    updates = brought(("a", 2.0), ("b", 4.0))
    assert steps(AfaCs(m=2, population=2), updates) == steps(Ca2fl(m=2, population=2), updates)
