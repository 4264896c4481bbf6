"""FedNova, against numbers that were worked out by hand."""

import numpy as np
import pytest

from anarchic import Guard, Updates
from anarchic.core.rules import AfaCd, FedBuff, FedNova
from anarchic.errors import ConfigError, MalformedUpdate

from ..make import dump, fold, update


def test_steps_along_normalised_directions_times_the_mean_number_of_steps():
    pushed = [update([1.0], "a", local_steps=1, local_lr=0.1)]
    pushed += [update([2.0], "b", local_steps=3, local_lr=0.1)]
    rule = FedNova(m=2)
    # tau_eff = (1 + 3) / 2 = 2, directions 0.1 and 0.2, their mean 0.15
    assert fold(rule, rule.init(np.zeros(1)), pushed).params[0] == pytest.approx(-0.3)
    # FedAvg: (1 * 0.1 * 1 + 3 * 0.1 * 2) / 2
    plain = FedBuff(m=2, power=0.0)
    assert fold(plain, plain.init(np.zeros(1)), pushed).params[0] == pytest.approx(-0.35)


def test_by_samples_weighs_directions_and_steps():
    rule = FedNova(m=2, by_samples=True)
    pushed = [update([1.0], "a", local_steps=1, samples=1)]
    pushed += [update([2.0], "b", local_steps=3, samples=3)]
    # p = 1/4, 3/4: tau_eff = 2.5, mean direction 1.75
    assert fold(rule, rule.init(np.zeros(1)), pushed).params[0] == pytest.approx(-4.375)


def test_momentum_and_a_proximal_term_make_more_and_less_of_a_step():
    assert FedNova(m=1, momentum=0.9).steps_add_up_to(0.1, 2) == pytest.approx(2.9)  # 1.9 + 1
    assert FedNova(m=1, momentum=0.5).steps_add_up_to(0.1, 3) == pytest.approx(4.25)
    assert FedNova(m=1, mu=1.0).steps_add_up_to(0.1, 2) == pytest.approx(1.9)  # 0.9 + 1


def test_the_buffer_is_empty_after_a_step():
    rule = FedNova(m=1)
    state = fold(rule, rule.init(np.zeros(1)), [update([1.0], local_steps=4)])
    assert state.params[0] == pytest.approx(-4.0)
    assert rule.receive(state, update([1.0], base_version=1)).params[0] == pytest.approx(-5.0)


def test_with_one_step_each_it_is_afa_cd_and_with_equal_steps_fedbuff_without_discount():
    rng = np.random.default_rng(0)
    for steps, twin in ((1, AfaCd(m=3)), (5, FedBuff(m=3, power=0.0))):
        rules = FedNova(m=3), twin
        states = [rule.init(np.zeros(2)) for rule in rules]
        for _ in range(9):
            each = update(rng.normal(size=2), local_steps=steps, local_lr=rng.uniform(0.1, 0.5))
            states = [rule.receive(s, each) for rule, s in zip(rules, states, strict=True)]
        np.testing.assert_allclose(states[0].params, states[1].params, rtol=1e-12)


def test_a_refused_update_changes_nothing():
    rule = FedNova(m=2, by_samples=True)
    state = rule.init(np.zeros(1))
    before = dump(state)
    with pytest.raises(MalformedUpdate, match="FedNova by samples got an update of 0 samples"):
        rule.receive(state, update([1.0]))
    assert dump(state) == before


@pytest.mark.parametrize(("local_lr", "steps"), [(20.0, 2), (1e4, 10_000), (10.0, 1), (30.0, 4)])
def test_a_proximal_term_that_leaps_over_its_goal_is_refused(local_lr, steps):
    """1 - eta_L * mu is not positive: a_i would be 0, negative, or beyond all numbers."""
    rule = FedNova(m=3, mu=0.1)
    state = rule.receive(rule.init(np.zeros(1)), update([1.0], local_lr=1.0))
    before = dump(state)
    far = update([1.0], local_lr=local_lr, local_steps=steps)
    told = "mu=0.1 got .*product must be below 1: lower the worker's local_lr below 10"
    with pytest.raises(MalformedUpdate, match=told):
        rule.receive(state, far)
    with pytest.raises(MalformedUpdate, match=told):
        rule.receive_many(state, Updates.of([update([1.0]), far]))
    with pytest.raises(MalformedUpdate, match=told):
        Guard(rule).receive(Guard(rule).init(np.zeros(1)), far)
    assert dump(state) == before


def test_a_block_with_one_update_without_samples_changes_nothing():
    rule = FedNova(m=3, by_samples=True)
    state = rule.init(np.zeros(1))
    before = dump(state)
    with pytest.raises(MalformedUpdate, match="0 samples"):
        rule.receive_many(state, Updates.of([update([1.0], samples=2), update([1.0])]))
    assert dump(state) == before


def test_a_tiny_proximal_term_is_none():
    assert FedNova(m=1, mu=1e-18).steps_add_up_to(0.1, 5) == pytest.approx(5.0)
    assert FedNova(m=1, mu=0.1).steps_add_up_to(5.0, 2) == pytest.approx(1.5)  # 1 + 0.5


@pytest.mark.parametrize("wrong", [{"momentum": 1.0}, {"mu": -1.0}, {"momentum": 0.5, "mu": 0.1}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match="FedNova"):
        FedNova(m=1, **wrong)
