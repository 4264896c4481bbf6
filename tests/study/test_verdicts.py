from __future__ import annotations

from dataclasses import replace

import pytest

from anarchic.errors import ConfigError, RunError
from anarchic.stats import compare
from anarchic.study import Asked, Group, Test, compare_groups, sentences
from anarchic.study.verdicts import counted_as
from tests.study.test_groups import ran

pytest.importorskip("scipy", reason="needs SciPy: the extra stats")
A = [0.90, 0.91, 0.92, 0.90]
B = [0.80, 0.82, 0.81, 0.80]


def group(label, ends, **lost):
    runs = [ran(seed, (0.0, end), lost.get(f"s{seed}", "rounds")) for seed, end in enumerate(ends)]
    return Group(label, runs)


GROUPS = [group("a", A), group("b", B), group("c", A)]


def test_groups_are_compared_over_common_seeds():
    (found,) = compare_groups(GROUPS, "a", "b", Asked())
    values = {"a": dict(enumerate(A)), "b": dict(enumerate(B))}
    assert found == compare(values, [("a", "b")])[0]
    (said,) = sentences([found], Asked())
    assert said.startswith("final accuracy of a less that of b: +0.1000")
    assert said.endswith("a is better than b.")


def test_one_group_is_compared_with_all_others():
    found = compare_groups(GROUPS, "a", "all", Asked())
    assert [(each.ours, each.theirs) for each in found] == [("a", "b"), ("a", "c")]


@pytest.mark.parametrize("name", ["afa-cd, sgd", "afa-cd,sgd", " afa-cd ,sgd"])
def test_spaces_around_the_commas_of_a_group_do_not_matter(name):
    groups = [group("afa-cd, sgd", A), group("fedbuff, sgd", B)]
    for ours, theirs in ((name, "all"), (name, "fedbuff,sgd")):
        (found,) = compare_groups(groups, ours, theirs, Asked())
        assert (found.ours, found.theirs) == ("afa-cd, sgd", "fedbuff, sgd")
    with pytest.raises(ConfigError) as told:
        compare_groups(groups, "afa-cd,sgt", "all", Asked())
    assert str(told.value) == (
        "There is no group 'afa-cd,sgt'. Did you mean 'afa-cd, sgd'? There are, in quotes, "
        '"afa-cd, sgd", "fedbuff, sgd".'
    )


def test_the_names_of_settings_may_be_left_out():
    groups = [group("afa-cd, server_lr=0.5", A), group("afa-cd, server_lr=1", B)]
    (found,) = compare_groups(groups, "afa-cd,0.5", "afa-cd, server_lr=1", Asked())
    assert (found.ours, found.theirs) == ("afa-cd, server_lr=0.5", "afa-cd, server_lr=1")


def test_a_lost_run_is_refused_until_it_is_said_what_counts():
    groups = [group("a", A, s2="diverged"), group("b", B)]
    said = r"a diverged with seeds \[2\]. Say what counts in their place: --lost-as"
    with pytest.raises(RunError, match=said):
        compare_groups(groups, "a", "b", Asked())
    test = Test(lost_as=0.1)
    (found,) = compare_groups(groups, "a", "b", Asked(), test)
    values = {"a": {0: 0.9, 1: 0.91, 2: 0.1, 3: 0.9}, "b": dict(enumerate(B))}
    assert found == compare(values, [("a", "b")])[0]
    assert counted_as(groups, Asked(), test) == "Without a value, and counted as 0.1: a seed 2."
    assert counted_as(GROUPS, Asked(), test) == ""


def test_a_shorter_way_to_the_target_is_better():
    fast = Group("fast", [ran(n, (0.0, 0.9, 0.9 + 0.01 * n)) for n in range(6)])
    slow = Group("slow", [ran(n, (0.0, 0.1, 0.9 + 0.01 * n)) for n in range(6)])
    asked, test = Asked(target=0.5), Test(measure="to_target")
    (said,) = sentences(compare_groups([fast, slow], "fast", "slow", asked, test), asked, test)
    assert said.startswith("round to the target of fast less that of slow: -2")
    assert said.endswith("fast is better than slow.")


def test_it_is_said_why_a_run_has_no_value():
    asked, to_target = Asked("loss", target=0.15), Test(measure="to_target")
    groups = [group("a", A, s1="failed"), group("b", B)]
    with pytest.raises(RunError) as told:
        compare_groups(groups, "a", "b", asked, to_target)
    assert str(told.value) == (
        "Runs without a value: a failed with seeds [1]; b did not reach loss 0.15 with seeds "
        "[0, 1, 2, 3]. Say what counts in their place: --lost-as X, in Python Test(lost_as=X)."
    )
    with pytest.raises(ConfigError, match="to_target needs a target: give --target"):
        compare_groups(GROUPS, "a", "all", Asked(), to_target)
    with pytest.raises(RunError, match=r"a has no accuracy against virtual time .*\[0, 1, 2, 3\]"):
        compare_groups(GROUPS, "a", "b", Asked(against="virtual_s"))
    other = Group("c", [ran(seed, stopped_at="failed") for seed in (7, 8)])
    shorter = Group("d", [*group("d", B).runs, *other.runs])
    assert compare_groups([GROUPS[0], shorter], "a", "d", Asked())  # 7 and 8 are in no pair


def under(label, by=("rule",), **settings):
    runs = [replace(run, settings={**run.settings, **settings}) for run in group(label, A).runs]
    return Group(label, runs, by=by)


def test_groups_under_other_conditions_are_not_tested():
    groups = [under("a", rounds=40), under("b", data="csv", rounds=60)]
    said = r"a and b differ in data, rounds too.*--group-by rule,data,rounds"
    with pytest.raises(ConfigError, match=said):
        compare_groups(groups, "a", "b", Asked())
    by = ("rule", "data", "rounds")
    asked_for = [under("a", by, rounds=40), under("b", by, data="csv", rounds=60)]
    assert compare_groups(asked_for, "a", "b", Asked())
    alike = [under("a", server_lr=1.0), under("b", server_lr=2.0, m=3)]
    assert compare_groups(alike, "a", "b", Asked())  # a method may choose these


def test_areas_are_tested_up_to_where_the_shortest_curve_ends():
    long = Group("long", [ran(n, (0.0, 0.5, 0.5, 0.9 + 0.01 * n)) for n in range(3)])
    short = Group("short", [ran(n, (0.0, 0.5, 0.5)) for n in range(3)])
    (found,) = compare_groups([long, short], "long", "short", Asked(), Test(measure="area"))
    assert found.interval.mean == 0


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("a", "a"), "nothing to compare a with"),
        (("all", "a"), "no group 'all'"),
        (("a", "d"), "no group 'd'"),
    ],
)
def test_groups_that_cannot_be_compared_are_refused(names, said):
    with pytest.raises(ConfigError, match=said):
        compare_groups(GROUPS, *names, Asked())
    with pytest.raises(ConfigError, match="no measure 'last'"):
        Test(measure="last")
    with pytest.raises(ConfigError, match="no interval 'z'"):
        Test(interval="z")
