"""Wrappers of other packages: what they need not say, the one inside says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from anarchic import AfaCd, AfaCs, FedBuff, Guard, Updates
from anarchic.core.influence import lengths_of
from anarchic.core.wrappers import StatefulWrapper, Wrapper, WrapperState

from .make import dump, fold, update, vector


@dataclass(frozen=True)
class Halved(Wrapper[Any]):
    """Every rate counts half."""

    def folded_scale(self, local_lr, local_steps, staleness, norm):
        return self.rule.folded_scale(local_lr / 2, local_steps, staleness, norm)

    def receive(self, state, update):
        return self.rule.receive(state, replace(update, local_lr=update.local_lr / 2))

    def receive_many(self, state, block):
        return self.rule.receive_many(state, replace(block, local_lrs=block.local_lrs / 2))


@dataclass(slots=True)
class CountedState(WrapperState[Any]):
    inner: Any
    updates: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Counted(StatefulWrapper[Any]):
    """Counts updates and steps."""

    def init(self, params):
        return CountedState(self.rule.init(params))

    def receive(self, state, update):
        version = state.version
        state.inner = self.rule.receive(state.inner, update)
        state.updates += 1
        return self.after_step(state) if state.version > version else state

    def receive_many(self, state, block):
        for row in range(len(block)):
            state = self.receive(state, block.row(row))
        return state

    def after_step(self, state):
        state.steps += 1
        return state


UPDATES = [update([2.0], "ann"), update([8.0], "bob"), update([4.0], "ann")]


def test_a_wrapper_without_a_state_says_two_methods():
    rule = Halved(Guard(AfaCs(m=2), factor=2.0))
    state = fold(rule, rule.init(vector(0.0)), UPDATES)
    assert dump(state) == dump(rule.receive_many(rule.init(vector(0.0)), Updates.of(UPDATES)))
    assert (rule.m, rule.remaining(state), rule.innermost) == (2, 1, AfaCs(m=2))
    assert rule.guard_record(state).clipped == 1  # 4 of 1, which is the scale until three are heard
    assert [*rule.rows(state)] == ["inner.rows"]
    assert rule.forget(state, "bob")
    assert rule.flush(state).version == 2


def test_a_wrapper_with_a_state_hides_neither_a_guard_nor_rows():
    rule = Counted(Guard(AfaCs(m=2), factor=2.0))
    state = fold(rule, rule.init(vector(0.0)), UPDATES)
    assert (state.updates, state.steps, rule.remaining(state)) == (3, 1, 1)
    assert rule.guard_record(state).clipped == 2
    assert [*rule.rows(state)] == ["inner.inner.rows"]
    assert rule.forget(state, "bob")
    assert rule.flush(state).steps == 2


def test_a_rule_without_a_guard_has_no_record():
    rule = Counted(Halved(AfaCd(m=1)))
    assert rule.guard_record(rule.init(vector(0.0))) is None


@pytest.mark.parametrize(
    ("rule", "folded"), [(Halved(AfaCd(m=2)), 4.0), (Counted(Halved(FedBuff(m=2, power=0))), 20.0)]
)
def test_what_an_own_wrapper_takes_away_is_known_where_influence_is_shown(rule, folded):
    came = lengths_of(rule)(0.1, 5, 0, 8.0, 1.0)[0]
    assert lengths_of(rule)(0.1, 5, 3, 8.0, 1.0) == pytest.approx((came, folded))
