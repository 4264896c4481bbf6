from __future__ import annotations

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


def test_a_lost_run_is_refused_until_it_is_said_what_counts():
    groups = [group("a", A, s2="diverged"), group("b", B)]
    with pytest.raises(RunError, match=r"seeds \[2\] diverged"):
        compare_groups(groups, "a", "b", Asked())
    test = Test(lost_as=0.1)
    (found,) = compare_groups(groups, "a", "b", Asked(), test)
    values = {"a": {0: 0.9, 1: 0.91, 2: 0.1, 3: 0.9}, "b": dict(enumerate(B))}
    assert found == compare(values, [("a", "b")])[0]
    assert counted_as(groups, Asked(), test) == "Without a value, and counted as 0.1: a seed 2."
    assert counted_as(GROUPS, Asked(), test) == ""


def test_a_shorter_way_to_the_target_is_better():
    fast = Group("fast", [ran(n, (0.0, 0.9, 0.9 + 0.01 * n)) for n in range(4)])
    slow = Group("slow", [ran(n, (0.0, 0.1, 0.9 + 0.01 * n)) for n in range(4)])
    asked, test = Asked(target=0.5), Test(measure="to_target")
    (said,) = sentences(compare_groups([fast, slow], "fast", "slow", asked, test), asked, test)
    assert said.startswith("round to the target of fast less that of slow: -2")
    assert said.endswith("fast is better than slow.")


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
