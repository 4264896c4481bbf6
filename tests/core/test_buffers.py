import numpy as np
import pytest

from anarchic import (
    AfaCd,
    AfaCs,
    AverageBuffers,
    Clip,
    FedAvg,
    Guard,
    Layout,
    StalenessDiscount,
    Updates,
)
from anarchic.core.buffers import average_buffers
from anarchic.core.types import Update
from anarchic.errors import ConfigError, StaleUpdate

from .make import dump, fold, update, vector
from .rules.cases import RULES, stream


def test_a_step_takes_the_mean_of_the_buffers_and_steps_along_the_rest():
    rule = AverageBuffers(AfaCd(m=2, server_lr=0.5), places=(1,))
    state = rule.receive(rule.init(vector(10.0, 7.0)), update([2.0, 3.0]))
    assert state.params.tolist() == [10.0, 7.0]  # one update: not yet
    state = rule.receive(state, update([4.0, 9.0], local_lr=0.1, local_steps=8))
    assert state.version == 1
    assert state.params.tolist() == pytest.approx([10 - 0.5 * (2 + 0.4) / 2, (3 + 9) / 2])
    state = fold(rule, state, [update([0.0, 1.0], base_version=0)] * 2)
    assert state.params[1] == 1.0  # late ones count like others, and old buffers not at all


def test_buffers_are_seen_by_no_clip_discount_or_guard():
    inside = Guard(Clip(StalenessDiscount(AfaCd(m=1), power=1.0), max_norm=1.0), factor=2.0)
    rule = AverageBuffers(inside, places=(0,))
    state = rule.init(vector(1000.0, 0.0))
    assert rule.guard_record(state).first == 1.0
    state = rule.receive(state, update([500.0, 0.5]))
    assert state.params.tolist() == [500.0, -0.5]  # not cut
    seen = rule.guard_record(state)
    assert (seen.clipped, seen.farthest) == (0, 0.5)
    state = rule.receive_many(state, Updates.of([update([8.0, 0.5])]))  # a version late
    assert state.params.tolist() == [8.0, -0.75]


def test_a_flush_averages_what_is_there():
    rule = AverageBuffers(AfaCd(m=9), places=(1,))
    state = fold(rule, rule.init(vector(0.0, 5.0)), [update([1.0, 2.0]), update([1.0, 4.0])])
    state = rule.flush(state)
    assert (state.version, state.params.tolist()) == (1, [-1.0, 3.0])
    assert rule.flush(state).params.tolist() == [-1.0, 3.0]


def test_what_is_forgotten_is_forgotten_inside():
    rule = AverageBuffers(AfaCs(m=1), places=(1,))
    state = rule.receive(rule.init(vector(0.0, 0.0)), update([1.0, 2.0], "ann"))
    assert [*rule.rows(state)] == ["inner.rows"]
    assert rule.remembers == AfaCs(m=1).remembers
    assert rule.forget(state, "ann")
    assert not rule.forget(state, "ann")


@pytest.mark.parametrize("case", RULES, ids=lambda case: case.name)
def test_without_places_it_is_the_rule_inside(case):
    rule = AverageBuffers(case.rule, places=())
    updates = stream(case, 3 * rule.m)
    params = np.linspace(-1, 1, 5).astype(np.float32)
    state = fold(rule, rule.init(params), updates)
    alone = fold(case.rule, case.rule.init(params), updates)
    assert dump(state.inner) == dump(alone)
    assert state.params.tobytes() == alone.params.tobytes()
    assert (rule.m, rule.takes_late, rule.remembers, rule.scale(0.5, 3)) == (
        *(case.rule.m, case.rule.takes_late, case.rule.remembers),
        case.rule.scale(0.5, 3),
    )


def test_a_block_that_the_rule_inside_refuses_changes_nothing():
    rule = AverageBuffers(FedAvg(m=2), places=(0,))
    state = rule.init(vector(0.0, 1.0))
    before = dump(state)
    with pytest.raises(StaleUpdate):  # the third starts from version 0, where 1 is wanted
        rule.receive_many(state, Updates.of([update([1.0, 2.0])] * 3))
    assert dump(state) == before


def test_tensors_are_averaged_where_they_lie():
    torch = pytest.importorskip("torch")
    rule = AverageBuffers(AfaCd(m=2), places=(1,))
    updates = [update([2.0, 3.0], dtype="f4"), update([4.0, 9.0], dtype="f4")]
    there = [Update("a", 0, 1, 1.0, torch.from_numpy(each.direction)) for each in updates]
    state = fold(rule, rule.init(torch.tensor([10.0, 7.0])), there)
    assert isinstance(state.params, torch.Tensor)
    assert state.params.tolist() == [7.0, 6.0]


def test_a_rule_is_wrapped_once_and_only_where_there_are_buffers():
    tensors = {"w": ((2,), "F32"), "mean": ((3,), "F32")}
    assert average_buffers(AfaCd(m=1), Layout.of(tensors)) == AfaCd(m=1)
    layout = Layout.of(tensors, buffers=["mean"])
    wrapped = average_buffers(AfaCd(m=1), layout)
    assert wrapped == AverageBuffers(AfaCd(m=1), places=(0, 1, 2))
    assert average_buffers(wrapped, layout) == wrapped


@pytest.mark.parametrize("places", [(-1,), (0, 0), (2,)])
def test_places_must_be_those_of_the_model(places):
    with pytest.raises(ConfigError, match="AverageBuffers"):
        AverageBuffers(AfaCd(m=1), places).init(vector(0.0, 0.0))
