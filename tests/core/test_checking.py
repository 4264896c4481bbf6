"""Every vector is read once before it is folded, however many rules are around the rule."""

from collections import Counter
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from anarchic import AfaCd, AfaCs, Clip, FedAsync, SharedVectors, StalenessDiscount
from anarchic.core import checking
from anarchic.core.checking import check
from anarchic.core.wrappers import Reweighted
from anarchic.errors import MalformedUpdate, NotFinite, StaleUpdate

from .make import dump, update, vector

CONTROL = {"control": np.array([7.0, 0.0])}


@pytest.fixture
def reads(monkeypatch):
    """How often each vector was read, by its first number."""
    found = Counter()

    def counted(measure):
        def read(array):
            found[float(array.reshape(-1)[0])] += 1
            return measure(array)

        return read

    for name in ("norms", "norms_at_most"):
        monkeypatch.setattr(checking, name, counted(getattr(checking, name)))
    return found


@pytest.mark.parametrize(
    "rule",
    [
        AfaCd(m=9),
        AfaCs(m=9),
        FedAsync(),
        Clip(AfaCd(m=9)),
        StalenessDiscount(AfaCs(m=9)),
        Clip(StalenessDiscount(AfaCd(m=9))),
        StalenessDiscount(Clip(AfaCd(m=9))),
    ],
    ids=repr,
)
def test_a_direction_is_read_once(rule, reads):
    rule.receive(rule.init(vector(0.0, 0.0)), update([3.0, 4.0]))
    measured_inside = isinstance(rule, StalenessDiscount) and isinstance(rule.rule, Clip)
    assert reads == {3.0: 1 + measured_inside}  # a bound, then the norm that only Clip asks for


def test_what_is_carried_is_read_once(reads):
    rule = SharedVectors(AfaCd(m=9), ("control",), population=4)
    rule.receive(rule.init(vector(0.0, 0.0)), update([3.0, 4.0], extras=CONTROL))
    assert reads == {3.0: 1, 7.0: 1}
    reads.clear()
    rule = Clip(rule)
    rule.receive(rule.init(vector(0.0, 0.0)), update([3.0, 4.0], extras=CONTROL))
    assert reads == {3.0: 1, 7.0: 1}


def test_a_check_measures_as_it_reads(reads):
    seen = check(update([3.0, 4.0]), params=vector(0.0, 0.0), version=0, measured=True)
    assert seen.norm == 5.0
    assert reads == {3.0: 1}


def test_the_same_update_is_read_again_when_it_comes_again(reads):
    rule, one = Clip(AfaCd(m=9)), update([3.0, 4.0])
    state = rule.receive(rule.init(vector(0.0, 0.0)), one)
    state = rule.receive(state, one)
    assert reads == {3.0: 2}
    one.direction[1] = np.nan
    before = dump(state)
    with pytest.raises(NotFinite):
        rule.receive(state, one)
    assert dump(state) == before


def test_what_was_read_once_is_not_read_by_a_rule(reads):
    seen = check(update([3.0, 4.0], local_lr=0.5), params=vector(0.0, 0.0), version=0)
    state = AfaCd(m=1).receive(AfaCd(m=1).init(vector(0.0, 0.0)), seen)
    assert reads == {3.0: 1}
    assert state.params.tolist() == [-1.5, -2.0]


@pytest.mark.parametrize(
    ("claims", "refusal"),
    [
        ({"local_lr": 1e200}, NotFinite),  # what it reaches is not what was looked at
        ({"local_lr": -1.0}, MalformedUpdate),
        ({"base_version": 1}, StaleUpdate),
        ({"direction": vector(1.0)}, MalformedUpdate),
        ({"extras": {"control": vector(1.0, 1.0)}}, MalformedUpdate),
    ],
    ids=str,
)
def test_all_else_is_checked_again(claims, refusal):
    seen = check(update([3.0, 4.0]), params=vector(0.0, 0.0), version=0)
    with pytest.raises(refusal):
        check(replace(seen, **claims), params=vector(0.0, 0.0), version=0)


def test_no_factor_lifts_an_update_over_the_bound():
    @dataclass(frozen=True)
    class Louder(Reweighted):
        by_length = False

        def factor(self, staleness, length):
            return 1e200

    rule = Louder(AfaCd(m=1))
    with pytest.raises(NotFinite):
        rule.receive(rule.init(vector(0.0)), update([1.0]))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["direction", "control"])
@pytest.mark.parametrize("measured", [False, True])
def test_nothing_that_is_not_finite_passes(where, bad, measured):
    vectors = {"direction": vector(1.0, 1.0), "control": vector(1.0, 1.0)}
    vectors[where][1] = bad
    one = update(vectors["direction"], extras={"control": vectors["control"]})
    names = frozenset({"control"})
    with pytest.raises(NotFinite, match=where):
        check(one, params=vector(0.0, 0.0), version=0, extras=names, measured=measured)


def test_what_was_checked_is_the_same_update():
    one = update([3.0, 4.0], "ann", samples=7, id="x", extras={"control": vector(1.0, 2.0)})
    seen = check(one, params=vector(0.0, 0.0), version=0, extras=frozenset({"control"}))
    for each in fields(one):
        assert getattr(seen, each.name) is getattr(one, each.name)
