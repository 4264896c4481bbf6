from dataclasses import replace

import numpy as np
import pytest

from anarchic import (
    AfaCd,
    AfaCs,
    Clip,
    FedAsync,
    FedAvg,
    FedBuff,
    FedNova,
    SharedVectors,
    StalenessDiscount,
    Updates,
)
from anarchic.core import checking, wrappers
from anarchic.core.checking import MOST
from anarchic.errors import ConfigError, StaleUpdate, UpdateRefused

from .make import dump, fold, update, vector


def carried(direction, control, **others):
    return update(direction, extras={"control": vector(control)}, **others)


# StalenessDiscount


def test_a_late_update_counts_less():
    rule = StalenessDiscount(AfaCd(m=1), power=0.5)
    state = fold(rule, rule.init(vector(0.0)), [update([0.0], base_version=v) for v in range(3)])
    state = rule.receive(state, update([8.0], base_version=3))
    assert state.params[0] == -8.0  # fresh
    state = rule.receive(state, update([8.0], base_version=1))
    assert state.params[0] == -12.0  # three versions late: 1 / sqrt(4)


def test_in_a_block_staleness_counts_from_the_version_that_is_met():
    rule = StalenessDiscount(AfaCd(m=1), power=1.0)
    block = Updates.of([update([12.0], base_version=0)] * 4)
    state = rule.receive_many(rule.init(vector(0.0)), block)
    assert state.params[0] == pytest.approx(-12 - 6 - 4 - 3)


def test_what_counts_by_lateness_alone_is_not_measured(monkeypatch):
    monkeypatch.setattr(wrappers, "norms", None)
    monkeypatch.setattr(checking, "norms", None)
    rule = StalenessDiscount(AfaCd(m=2), power=1.0)
    block = Updates.of([update([12.0])] * 2)
    assert rule.receive_many(rule.init(vector(0.0)), block).params[0] == -12.0


@pytest.mark.parametrize("power", [-0.5, float("nan")])
def test_the_power_must_not_be_negative(power):
    with pytest.raises(ConfigError, match="power"):
        StalenessDiscount(AfaCd(m=1), power)


@pytest.mark.parametrize("rule", [AfaCd(m=2), AfaCs(m=2), FedBuff(m=2)], ids=repr)
@pytest.mark.parametrize("local_lr", [5e-324, 1.0])
@pytest.mark.parametrize(
    "around",
    [
        lambda rule: StalenessDiscount(rule, power=2000.0),
        lambda rule: Clip(rule, max_norm=5e-324),
        lambda rule: Clip(StalenessDiscount(rule, power=2000.0), max_norm=5e-324),
    ],
    ids=["discount", "clip", "both"],
)
def test_an_update_that_weighs_next_to_nothing_counts_all_the_same(rule, local_lr, around):
    rule = around(rule)
    block = [update([0.0], "b"), update([0.0], "b"), update([8.0], local_lr=local_lr)]
    state = fold(rule, rule.init(vector(4.0)), block)  # the third is one version late
    assert (state.version, rule.remaining(state)) == (1, 1)
    assert rule.receive(state, update([0.0], "b", base_version=1)).params[0] == 4.0
    again = rule.receive_many(rule.init(vector(4.0)), Updates.of(block))
    assert (again.version, rule.remaining(again)) == (1, 1)


# Clip


def test_a_long_update_is_cut_to_max_norm_and_a_short_one_left_alone():
    rule = Clip(AfaCd(m=1), max_norm=1.0)
    state = rule.receive(rule.init(vector(0.0, 0.0)), update([6.0, 8.0], local_lr=0.5))
    np.testing.assert_allclose(state.params, [-0.6, -0.8])  # of length 5, cut to 1
    state = rule.receive(state, update([0.6, 0.0], local_lr=0.5))
    np.testing.assert_allclose(state.params, [-0.9, -0.8])
    state = rule.receive(state, update([0.0, 0.0]))
    np.testing.assert_allclose(state.params, [-0.9, -0.8])


def test_no_rate_buys_more_than_max_norm():
    rule = Clip(AfaCs(m=1), max_norm=1.0)
    state = rule.receive(rule.init(vector(0.0)), update([1.0], local_lr=1e9))
    assert state.params[0] == pytest.approx(-1.0)


BY_STEPS = [FedAvg(m=1), FedAvg(m=1, by_samples=True), FedBuff(m=1), FedAsync(mixing=1.0)]


@pytest.mark.parametrize("rule", [AfaCd(m=1), AfaCs(m=1), *BY_STEPS], ids=repr)
def test_no_number_of_steps_buys_more_than_max_norm(rule):
    rule = Clip(rule, max_norm=1.0)
    hostile = update([3.0, 4.0], local_lr=0.5, local_steps=MOST, samples=MOST)
    state = rule.receive(rule.init(vector(0.0, 0.0)), hostile)
    np.testing.assert_allclose(state.params, [-0.6, -0.8])
    block = rule.receive_many(rule.init(vector(0.0, 0.0)), Updates.of([hostile]))
    assert block.params.tobytes() == state.params.tobytes()


@pytest.mark.parametrize("rule", BY_STEPS, ids=repr)
def test_of_rules_that_count_steps_the_whole_displacement_is_cut(rule):
    rule = Clip(rule, max_norm=1.0)
    short = update([0.3, 0.4], local_lr=0.5, local_steps=4, samples=1)  # of length 0.25 a step
    state = rule.receive(rule.init(vector(0.0, 0.0)), short)
    np.testing.assert_allclose(state.params, [-0.6, -0.8])
    state = rule.receive(state, replace(short, base_version=1, local_steps=5))
    np.testing.assert_allclose(state.params, [-1.2, -1.6])


def test_tensors_are_cut_where_they_lie(monkeypatch):
    """As arrays are, to rounding; the host reads nothing, which on a GPU it would wait for."""
    torch = pytest.importorskip("torch")
    rule = Clip(AfaCd(m=1), max_norm=1.0)
    directions = np.array([[6.0, 8.0], [0.6, 0.0], [0.0, 0.0], [3e15, 4e15]], np.float32)
    arrays = Updates.of([update(row, local_lr=0.5, dtype="f4") for row in directions])
    tensors = replace(arrays, directions=torch.from_numpy(directions))
    late = np.zeros(4, np.int64)
    with monkeypatch.context() as patch:
        for name in ("tolist", "item", "numpy", "cpu", "__bool__", "__float__", "__array__"):
            patch.setattr(torch.Tensor, name, None)
        there = rule.reweighted(tensors, late)
    here = rule.reweighted(arrays, late)
    reach = there.local_lrs[:, None] * there.directions.numpy()
    np.testing.assert_allclose(reach, [[0.6, 0.8], [0.3, 0.0], [0.0, 0.0], [0.6, 0.8]], rtol=1e-6)
    np.testing.assert_allclose(reach, here.local_lrs[:, None] * here.directions, rtol=1e-6)


def test_a_narrow_direction_is_measured_in_a_wider_type():
    """The square of 300 is too large for float16."""
    rule = Clip(AfaCd(m=1), max_norm=1.0)
    state = rule.receive(rule.init(vector(0.0, dtype="f4")), update([300.0], dtype="f2"))
    assert state.params[0] == pytest.approx(-1.0)


@pytest.mark.parametrize("max_norm", [0.0, -1.0, float("inf"), float("nan")])
def test_max_norm_must_be_positive_and_finite(max_norm):
    with pytest.raises(ConfigError, match="max_norm"):
        Clip(AfaCd(m=1), max_norm)


def test_wrappers_nest():
    rule = Clip(StalenessDiscount(AfaCd(m=1), power=1.0), max_norm=4.0)
    state = rule.receive(rule.init(vector(0.0)), update([1.0]))
    state = rule.receive(state, update([100.0], base_version=0))  # cut to 4, then halved
    assert state.params[0] == pytest.approx(-3.0)
    assert (rule.m, rule.remaining(state), state.version) == (1, 1, 2)


# SharedVectors


def test_carried_vectors_move_by_the_sum_over_the_population():
    rule = SharedVectors(AfaCd(m=2), ("control",), population=4)
    state = rule.receive(rule.init(vector(0.0)), carried([1.0], 2.0))
    assert state.extras["control"][0] == 0.0  # not before the step
    state = rule.receive(state, carried([1.0], 6.0))
    assert state.extras["control"][0] == 2.0  # (2 + 6) / 4
    state = fold(rule, state, [carried([1.0], -4.0)] * 2)
    assert (state.extras["control"][0], state.params[0]) == (0.0, -2.0)


def test_a_flush_publishes_what_was_brought():
    rule = SharedVectors(AfaCd(m=9), ("control",), population=4)
    state = rule.flush(rule.receive(rule.init(vector(0.0)), carried([1.0], 2.0)))
    assert (state.version, state.extras["control"][0]) == (1, 0.5)
    assert rule.flush(state).extras["control"][0] == 0.5


INNER_REFUSES = {
    "late in a later round": (
        FedAvg(m=2),
        [carried([1.0], 1.0)] * 3,  # the third starts from version 0, where version 1 is wanted
    ),
    "a newcomer in a later round": (
        AfaCs(m=2, population=1),
        [carried([1.0], 1.0, worker="ann")] * 2 + [carried([1.0], 1.0, worker="bob")],
    ),
    "too fast in a later round": (  # a proximal term of eta_L * mu >= 1 overshoots
        FedNova(m=2, mu=1.0),
        [*[carried([1.0], 1.0)] * 2, carried([1.0], 1.0, local_lr=1.0)],
    ),
}


def test_an_update_without_the_extra_counts_as_one_of_zero():
    rule = SharedVectors(AfaCd(m=2), ("control",), population=4)
    state = fold(rule, rule.init(vector(0.0)), [carried([1.0], 8.0), update([3.0])])
    assert (state.version, state.params[0], state.extras["control"][0]) == (1, -2.0, 2.0)


@pytest.mark.parametrize("how", INNER_REFUSES)
def test_a_block_that_the_rule_inside_refuses_changes_nothing(how):
    inner, updates = INNER_REFUSES[how]
    rule = SharedVectors(inner, ("control",), population=4)
    state = rule.init(vector(0.0))
    before = dump(state)
    with pytest.raises(UpdateRefused):
        rule.receive_many(state, Updates.of(updates))
    assert dump(state) == before


def test_an_update_that_the_rule_inside_refuses_brings_nothing():
    rule = SharedVectors(FedAvg(m=1), ("control",), population=4)
    state = rule.receive(rule.init(vector(0.0)), carried([1.0], 1.0))
    before = dump(state)
    with pytest.raises(StaleUpdate):
        rule.receive(state, carried([1.0], 1.0))
    assert dump(state) == before


@pytest.mark.parametrize(
    "settings",
    [
        {"names": (), "population": 1},
        {"names": ("c",), "population": 0},
        {"names": "control", "population": 1},  # would be seven names
    ],
    ids=str,
)
def test_settings_of_carry_are_checked(settings):
    with pytest.raises(ConfigError, match="SharedVectors needs"):
        SharedVectors(AfaCd(m=1), **settings)
