"""Schedules of the local rate, by numbers that can be checked by hand."""

from functools import partial

import numpy as np
import pytest

from anarchic import (
    Adam,
    Cosine,
    Decay,
    LocalWork,
    Milestones,
    Momentum,
    Schedule,
    Settings,
    Sgd,
    VisitStart,
    WarmUp,
    simulate,
)
from anarchic.core.factory import make_local_rule
from anarchic.core.local import begun
from anarchic.errors import ConfigError
from tests.core.test_local_wrappers import LAYOUT, visit


def factors(rule, steps, version):
    """By which the gradients of a visit are multiplied."""
    begun_rule, ones = begun(rule, VisitStart(0.5, version, LAYOUT)), np.ones(2)
    return [float(begun_rule.step(ones, ones, ones, {})[0]) for _ in range(steps)]


def test_a_warm_up_rises_to_the_whole_rate_and_stays():
    assert factors(WarmUp(4), 2, 0) == [0.25, 0.25]
    assert factors(WarmUp(4), 1, 2) == [0.75]
    assert factors(WarmUp(4), 1, 9) == [1.0]
    assert factors(WarmUp(warm_steps=2), 3, 7) == [0.5, 1.0, 1.0]
    assert factors(WarmUp(4, 2), 3, 1) == [0.25, 0.5, 0.5]


def test_a_cosine_falls_to_its_floor():
    assert factors(Cosine(100), 1, 0) == [1.0]
    assert factors(Cosine(100), 1, 50) == pytest.approx([0.5])
    assert factors(Cosine(100, floor=0.2), 1, 50) == pytest.approx([0.6])
    assert factors(Cosine(100, floor=0.2), 1, 1000) == pytest.approx([0.2])
    assert factors(Cosine(steps=2), 3, 9) == pytest.approx([1.0, 0.5, 0.0])


def test_milestones_drop_the_rate():
    rule = Milestones([10, 20], drop=0.5)
    assert [factors(rule, 1, t) for t in (9, 10, 19, 20)] == [[1.0], [0.5], [0.5], [0.25]]
    assert factors(Milestones(at_steps="1, 3", drop=0.5), 4, 9) == [1.0, 0.5, 0.5, 0.25]
    assert Milestones("10,20").at_versions == (10, 20)


def test_a_function_of_step_and_version():
    rule = Schedule(lambda step, version: 1 / (1 + step) + version)
    assert factors(rule, 3, 2) == pytest.approx([3, 2.5, 2 + 1 / 3])
    found = visit(rule, [[8.0, 0.0], [8.0, 0.0]], version=0)
    assert found.direction.tolist() == [(8 + 4) / 2, 0]


def test_schedules_in_each_other_are_multiplied():
    assert factors(WarmUp(4, rule=Milestones([1], drop=0.5)), 1, 1) == [0.25]
    rule = WarmUp(4, rule=Momentum(0.5))
    assert visit(rule, [[4.0, 0.0]] * 2, version=1).direction.tolist() == [(2 + 3) / 2, 0]
    assert rule.scratch == ("velocity",)


@pytest.mark.parametrize(
    "rule", [WarmUp(), WarmUp(1, 1), Cosine(), Milestones(), Milestones(drop=1)]
)
def test_one_that_changes_nothing_is_left_out(rule):
    assert rule.plain
    assert begun(rule, VisitStart(0.5, 3, LAYOUT)) == Sgd()
    assert not WarmUp(2).plain
    assert not Schedule(lambda step, version: 1.0).plain


RULES = [
    WarmUp(3, 2),
    Cosine(4, 3, 0.1),
    Milestones([1], [2]),
    Schedule(lambda k, t: 1 / (1 + k + t)),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_lanes_have_each_the_factor_of_its_own_version(rule, kind):
    array = np.array if kind == "numpy" else pytest.importorskip("torch").tensor
    versions = [0, 2, 1, 2]
    lanes = begun(rule, VisitStart(np.full((4, 1), 0.5), np.array(versions)[:, None], LAYOUT))
    expected = np.array([factors(rule, 3, version) for version in versions])
    ones = array([[1.0, 1.0]] * 4)
    for step, left in enumerate((4, 4, 3)):  # the last visit ends before
        some = ones[:left]
        found = np.asarray(lanes.step(some, some, some, {}))
        np.testing.assert_allclose(found[:, 0], expected[:left, step])


def halved(step, version, base=0.5):
    return base**version


def test_a_recorded_run_knows_a_function_by_its_name_and_values():
    assert repr(Schedule(halved)) == (
        "Schedule(rule=Sgd(), described='tests.core.test_local_schedules.halved(0.5)')"
    )
    one, other = (Schedule(lambda k, t, by=by: by**t) for by in (0.5, 0.9))
    assert repr(one) != repr(other)
    assert "<lambda>" in repr(one)
    assert " at 0x" not in repr(one)
    assert repr(Schedule(partial(halved, base=0.3))) != repr(Schedule(halved))
    assert Schedule(halved) == Schedule("tests.core.test_local_schedules:halved")


def test_schedules_are_made_by_name():
    made = make_local_rule("warmup+cosine+adam", {"warm_versions": 5, "versions": 100})
    assert made == WarmUp(5, rule=Cosine(100, rule=Adam()))
    made = make_local_rule("milestones", {"at_versions": "3,6", "drop": 0.5})
    assert made == Milestones([3, 6], drop=0.5)
    named = {"factor": "tests.core.test_local_schedules:halved"}
    assert make_local_rule("schedule", named) == Schedule(halved)


def test_a_run_with_a_schedule_is_recorded_and_goes_on(tmp_path):
    options = {"warm_versions": 2, "at_versions": [3, 5], "drop": 0.5}
    settings = Settings(
        rounds=4, batch=8, eval_every=4, local_rule="warmup+milestones", local_options=options
    )
    simulate(settings, out=tmp_path / "run")
    longer = simulate(out=tmp_path / "run", resume=True)
    whole = simulate(settings)
    assert longer.params.tobytes() == whole.params.tobytes()
    assert whole.params.tobytes() != simulate(Settings(rounds=4, batch=8)).params.tobytes()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: WarmUp(-1), "warm_versions as a whole number from 0 on, got -1"),
        (lambda: WarmUp(2.5), "got 2.5"),
        (lambda: Cosine(10, floor=2.0), "floor=2.0"),
        (lambda: Milestones("1, b"), "at_versions as whole numbers"),
        (lambda: Milestones([1.5]), "at_versions as whole numbers"),
        (lambda: Milestones([1], drop=0.0), "drop=0.0"),
        (lambda: Schedule(3), "takes a function of step and version"),
        (lambda: Schedule("nope"), "Expected module:name"),
        (lambda: Schedule(lambda step: 1.0), r"calls factor\(step, version\)"),
        (lambda: Schedule(lambda k, t: -1.0), "gives -1.0 for local step 0 of version 0"),
        (lambda: Decay(per_step=lambda k: 0.9), r"is Schedule\(function\)"),
        (lambda: LocalWork(lr=lambda k: 0.1), r"LocalWork\(Schedule\(function\), lr=0.1\)"),
        (lambda: WarmUp(3).step(np.ones(2), None, None, {}), "WarmUp must be told the version"),
    ],
)
def test_what_cannot_be_right_is_refused(make, says):
    with pytest.raises(ConfigError, match=says):
        make()
