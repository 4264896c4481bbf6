"""States of rules under other version numbers, for models of every kind."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic import Layout, Snapshot, Update
from anarchic.server.fold import changed_rows, decode_state, encode_state
from anarchic.server.refold import afresh, renumbered
from anarchic.server.settings import RuleSettings, served_rule

LAYOUT = Layout.of({"mean": ((2,), "F32"), "weight": ((3,), "F32")}, ("mean",))
PARAMS = np.arange(5, dtype=np.float32)
RULES = {
    "afa-cd": RuleSettings(m=2, guard=30.0, server_opt="adam"),
    "afa-cs": RuleSettings(rule="afa-cs", m=2, guard=30.0, staleness_power=0.5),
    "scaffold": RuleSettings(m=2, local_rule="scaffold", workers=3, clip=9.0),
}


def trained(rule, state, first):
    for number in range(first, first + 4):
        direction = np.full(5, number + 1, np.float32)
        extras = dict.fromkeys(state.extras, direction / 2)
        update = Update(f"w{number % 3}", state.version, 1, 0.1, direction, extras=extras)
        state = rule.receive(state, update)
    return state


@pytest.mark.parametrize("name", RULES)
def test_a_state_goes_on_under_another_number_and_from_a_store(name):
    rule = served_rule(RULES[name], LAYOUT)
    plain = trained(rule, rule.init(PARAMS), 0)
    other = renumbered(rule, trained(rule, rule.init(PARAMS), 0), 40)
    assert (plain.version, other.version) == (2, 40)
    rows, _ = changed_rows(rule, other)
    snapshot = Snapshot(40, other.params, other.extras, LAYOUT)
    stored = decode_state(rule, snapshot, encode_state(rule, other, LAYOUT), rows)
    ends = [trained(rule, state, 4) for state in (plain, other, stored)]
    assert [end.version for end in ends] == [4, 42, 42]
    for end in ends[1:]:
        assert end.params.tobytes() == ends[0].params.tobytes()
        assert all((end.extras[name] == ends[0].extras[name]).all() for name in end.extras)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_starts_afresh_from_a_snapshot_with_the_vectors_beside_it(name):
    rule = served_rule(RULES[name], LAYOUT)
    before = trained(rule, rule.init(PARAMS), 0)
    extras = {name: vector.copy() for name, vector in before.extras.items()}
    state = afresh(rule, Snapshot(2, before.params.copy(), extras), 7)
    assert (state.version, rule.remaining(state)) == (7, 2)
    assert state.params.tobytes() == before.params.tobytes()
    assert all((state.extras[name] == vector).all() for name, vector in extras.items())
    assert not any(len(rows) for rows in rule.rows(state).values())
    if not extras:  # nothing of the past is left
        fresh = trained(rule, rule.init(before.params), 4)
        assert trained(rule, state, 4).params.tobytes() == fresh.params.tobytes()
