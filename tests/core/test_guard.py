from dataclasses import replace
from itertools import cycle, islice

import numpy as np
import pytest

from anarchic import AfaCd, AfaCs, Clip, FedBuff, Guard, SharedVectors, StalenessDiscount, Updates
from anarchic.core.guard import WORKERS
from anarchic.errors import ConfigError

from .make import dump, fold, update, vector
from .rules.cases import RULES, stream


def names(count):
    return [f"w{number}" for number in range(count)]


def moved(rule, state, *given, **others):
    """How far one more update moves the model."""
    before = state.params[0]
    state = rule.receive(state, update(*given, base_version=state.version, **others))
    return before - state.params[0], state


def heard(rule, lengths, params=0.0):
    """A state after one update of each of these lengths, by workers w0, w1, ..."""
    updates = [update([length], name) for name, length in zip(names(99), lengths, strict=False)]
    return fold(rule, rule.init(vector(params)), updates)


# The first updates


def test_the_first_update_is_measured_by_the_first_parameters():
    rule = Guard(AfaCd(m=1), factor=2.0)
    assert moved(rule, rule.init(vector(0.0)), [2.0])[0] == 2.0  # within 2 * max(1, 0)
    assert moved(rule, rule.init(vector(0.0)), [4.0])[0] == 2.0
    assert moved(rule, rule.init(vector(0.0)), [2000.0])[0] == 2.0
    assert moved(rule, rule.init(vector(0.0)), [4000.0])[0] == 1.0  # 1000 * 2 * 2 / 4000
    assert moved(rule, rule.init(vector(5.0)), [10.0])[0] == 10.0  # within 2 * 5
    assert moved(rule, rule.init(vector(5.0)), [20.0])[0] == 10.0


def test_a_single_worker_stays_measured_by_the_first_parameters():
    rule = Guard(AfaCd(m=1), factor=2.0)
    state = rule.init(vector(0.0))
    for _ in range(20):
        distance, state = moved(rule, state, [4.0])
        assert distance == 2.0
    assert moved(rule, state, [1e15])[0] == pytest.approx(4e-12)


def test_from_three_workers_on_the_median_counts_if_it_is_smaller():
    rule = Guard(AfaCd(m=1), factor=2.0)
    small = heard(rule, [0.1, 0.2])
    assert moved(rule, small, [0.8], "w2")[0] == pytest.approx(0.4)
    large = heard(rule, [100.0, 200.0])
    assert moved(rule, large, [2.0], "w2")[0] == 2.0
    assert moved(rule, heard(rule, [100.0, 200.0]), [400.0], "w2")[0] == pytest.approx(2.0)


def test_from_eight_workers_on_the_median_counts():
    rule = Guard(AfaCd(m=1), factor=2.0)
    state = heard(rule, [100.0] * 7)
    assert moved(rule, state, [200.0], "w7")[0] == 200.0
    state = heard(rule, [100.0] * 8)
    assert moved(rule, state, [400.0], "w0")[0] == 200.0


def test_the_first_to_come_do_not_set_the_scale():
    rule = Guard(AfaCd(m=1))
    state = heard(rule, [1e15] * 3)
    assert abs(state.params[0]) < 1e-8
    assert moved(rule, state, [0.5], "honest")[0] == pytest.approx(0.5)


# The scale


def test_each_worker_has_one_vote_however_often_it_reports():
    rule = Guard(AfaCd(m=1), factor=2.0)
    state = heard(rule, [1.0] * 9)
    state = fold(rule, state, [update([1e15], "w0")] * 200)
    assert abs(state.params[0] + 9) < 1e-9
    assert moved(rule, state, [4.0], "w1")[0] == pytest.approx(2.0)


@pytest.mark.parametrize("length", [1e15, 1e-15])
def test_less_than_half_of_the_workers_cannot_move_the_scale_beyond_honest_lengths(length):
    rule = Guard(AfaCd(m=1), factor=2.0)
    state = heard(rule, [length] * 4 + [1.0, 1.1, 1.2, 1.3, 1.4])
    assert 1.0 <= state.record.lengths.scale(state.record.first) <= 1.4


def test_a_worker_votes_by_its_long_updates_which_fade():
    rule = Guard(AfaCd(m=1), factor=2.0)
    state = heard(rule, [10.0] * 8)
    state = fold(rule, state, [update([0.1], name) for name in names(8)])
    assert state.record.lengths.scale(state.record.first) == 9.0
    state = fold(rule, state, [update([0.1], name) for name in names(8) for _ in range(50)])
    assert state.record.lengths.scale(state.record.first) == 0.1


def test_the_scale_follows_honest_workers_wherever_they_go():
    rule = Guard(AfaCd(m=1), factor=2.0)
    state = heard(rule, [1.0] * 9)
    distances = []
    for name in names(9) * 2:
        distance, state = moved(rule, state, [1000.0], name)
        distances.append(distance)
    assert distances[:4] == pytest.approx([2.0] * 4)  # until more than half have grown
    assert distances[4:] == pytest.approx([1000.0] * 14)


def test_an_update_of_zero_says_nothing():
    rule = Guard(AfaCd(m=1), factor=2.0)
    state = fold(rule, heard(rule, [1.0] * 8), [update([0.0], f"idle{n}") for n in range(50)])
    assert moved(rule, state, [2.0], "w0")[0] == 2.0
    assert len(state.record.lengths) == 8


def test_only_the_workers_heard_last_are_kept():
    rule = Guard(AfaCd(m=1))
    state = heard(rule, [1.0] * 30)
    state = fold(rule, state, [update([5.0], f"new{n}") for n in range(WORKERS)])
    assert len(state.record.lengths) == WORKERS
    assert state.record.lengths.scale(state.record.first) == 5.0


def test_a_worker_that_is_forgotten_has_no_vote():
    rule = Guard(AfaCd(m=1))
    state = heard(rule, [1.0, 2.0, 3.0])
    assert rule.forget(state, "w1")
    assert not rule.forget(state, "w1")
    assert len(state.record.lengths) == 2
    remembering = Guard(AfaCs(m=1))
    state = heard(remembering, [1.0, 2.0])
    assert remembering.forget(state, "w0")
    assert len(state.inner.rows) == len(state.record.lengths) == 1


def test_the_length_is_what_the_rule_takes_the_mean_of():
    plain, by_steps = Guard(AfaCd(m=1), factor=2.0), Guard(FedBuff(m=1), factor=2.0)
    many = {"local_lr": 0.5, "local_steps": 8}
    assert moved(plain, plain.init(vector(0.0)), [4.0], **many)[0] == 2.0
    assert moved(by_steps, by_steps.init(vector(0.0)), [4.0], **many)[0] == 2.0  # 16, clipped
    one = {"local_lr": 0.5, "local_steps": 1}
    assert moved(by_steps, by_steps.init(vector(0.0)), [2.0], **one)[0] == 1.0


# What a rule remembers


def test_a_remembered_update_is_forgotten_once_the_others_show_that_it_was_too_long():
    rule = Guard(AfaCs(m=1), factor=2.0)
    state = rule.receive(rule.init(vector(0.0)), update([2.0], "eve"))  # as long as a first may be
    state = fold(rule, state, [update([0.1], "ann"), update([0.1], "bob")])
    assert "eve" not in state.inner.rows  # 2 is more than 2 * 2 * 0.1
    assert "ann" in state.inner.rows
    state = rule.receive(state, update([0.4], "eve"))
    assert "eve" in state.inner.rows  # clipped to 0.2


def test_a_remembered_update_is_forgotten_when_the_others_have_become_far_shorter():
    rule = Guard(AfaCs(m=1), factor=2.0)
    state = heard(rule, [1.0] * 8)
    for _ in range(30):
        state = fold(rule, state, [update([0.1], name) for name in names(8)[1:]])
    assert "w0" not in state.inner.rows
    assert len(state.inner.rows) == 7


def test_a_late_worker_with_long_updates_still_moves_the_model():
    rule = Guard(AfaCd(m=1))
    state = heard(rule, [1e-3] * 9)
    assert moved(rule, state, [1.0], "late")[0] == pytest.approx(30 * 1e-3)


# What is said of it


def test_the_state_says_what_was_clipped():
    rule = Guard(AfaCd(m=1), factor=2.0)
    state = fold(rule, rule.init(vector(0.0)), [update([2.0]), update([8.0]), update([1.0])])
    seen = rule.guard_record(state)
    assert (seen.clipped, seen.length, seen.bound, seen.farthest) == (1, 8.0, 2.0, 8.0)
    assert rule.rule.guard_record(state.inner) is None


# Around other wrappers


def carried(direction, control, worker):
    return update(direction, worker, extras={"control": vector(control)})


def test_vectors_beside_the_model_are_bounded_by_their_own_scale():
    rule = Guard(SharedVectors(AfaCd(m=1), ("control",), population=1), factor=2.0)
    state = rule.receive(rule.init(vector(0.0)), carried([1.0], 2.0, "ann"))
    assert state.extras["control"][0] == 2.0
    state = rule.receive(state, carried([1.0], 4.0, "bob"))
    assert (state.extras["control"][0], state.params[0]) == (4.0, -2.0)  # 2 more
    tiny = replace(carried([1.0], 1e15, "bob"), local_lr=1e-15)  # a rate does not hide it
    state = rule.receive(state, tiny)
    assert state.extras["control"][0] == pytest.approx(4.0)
    assert state.record.clipped == 2


def test_it_acts_before_clip_and_discount():
    rule = Guard(Clip(StalenessDiscount(AfaCd(m=1), power=1.0), max_norm=0.25), factor=2.0)
    state = fold(rule, rule.init(vector(0.0)), [update([0.0])])
    state = rule.receive(state, update([8.0], base_version=0))  # 2, cut to 1/4, halved
    assert state.params[0] == pytest.approx(-0.125)


# Limiting cases


@pytest.mark.parametrize("case", RULES[:30], ids=lambda case: case.name.replace(" ", "_"))
def test_without_a_bound_it_is_the_rule_inside_byte_for_byte(case):
    guarded, updates = Guard(case.rule, factor=np.inf), stream(case, 20)
    params = np.linspace(-1, 1, 5).astype(np.float32)
    bare = dump(fold(case.rule, case.rule.init(params), updates))
    assert dump(fold(guarded, guarded.init(params), updates).inner) == bare
    assert dump(guarded.receive_many(guarded.init(params), Updates.of(updates)).inner) == bare


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 100])
def test_workers_of_equal_lengths_are_left_alone(workers):
    guarded, bare = Guard(AfaCd(m=5), factor=1.0), AfaCd(m=5)
    params = vector(3.0, 4.0)  # of length 5
    updates = [update([0.6, 0.8], name) for name in islice(cycle(names(workers)), 200)]
    found = fold(guarded, guarded.init(params), updates)
    assert found.record.clipped == 0
    assert dump(found.inner) == dump(fold(bare, bare.init(params), updates))


def test_tensors_are_weighed_like_arrays():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    rule = Guard(SharedVectors(AfaCd(m=2), ("control",), population=1), factor=1.0)
    lengths = 10.0 ** rng.uniform(-3, 3, (20, 1))
    directions, controls = (lengths * rng.standard_normal((20, 4)) for _ in range(2))
    updates = [
        update(d, f"w{n % 7}", extras={"control": c})
        for n, (d, c) in enumerate(zip(directions, controls, strict=True))
    ]
    arrays = Updates.of(updates)
    tensors = replace(
        arrays,
        directions=torch.from_numpy(directions),
        extras={"control": torch.from_numpy(controls)},
    )
    here = rule.receive_many(rule.init(vector(1.0, 2.0, 3.0, 4.0)), arrays)
    there = rule.receive_many(rule.init(torch.tensor([1.0, 2.0, 3.0, 4.0]).double()), tensors)
    assert here.record.clipped == there.record.clipped > 5
    np.testing.assert_allclose(there.params.numpy(), here.params, rtol=1e-12)
    np.testing.assert_allclose(there.extras["control"].numpy(), here.extras["control"], rtol=1e-9)


@pytest.mark.parametrize("factor", [0.5, 0.0, -1.0, float("nan")])
def test_the_factor_must_be_at_least_one(factor):
    with pytest.raises(ConfigError, match="Guard needs a factor >= 1"):
        Guard(AfaCd(m=1), factor)
