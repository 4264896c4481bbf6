"""Several comparisons at once: corrected, in sentences, and right as often as they say."""

import numpy as np
import pytest

from anarchic.errors import ConfigError, RunError
from anarchic.stats import compare, different, equivalent, interval

stats = pytest.importorskip("scipy.stats", reason="needs SciPy: the extra stats")

# Student (1908), "The probable error of a mean": hours of sleep gained with two drugs, by patient.
FIRST = dict(enumerate([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]))
SECOND = dict(enumerate([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]))
VALUES = {"first": FIRST, "second": SECOND, "third": {n: v + 0.01 for n, v in FIRST.items()}}


def test_students_sleep_data_as_published():
    differences = [SECOND[n] - FIRST[n] for n in FIRST]
    found = interval(differences, method="t")
    assert found.mean == pytest.approx(1.58)
    assert (found.low, found.high) == pytest.approx((0.7001142, 2.4598858), abs=1e-6)
    assert different(differences) == pytest.approx(0.002833, abs=1e-6)  # t = 4.0621, 9 degrees


def test_the_bootstrap_is_scipys_for_the_same_draws():
    values = np.array(list(SECOND.values()))
    found = interval(values, method="bca")
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=9999, method="BCa", rng=np.random.default_rng(0)
    ).confidence_interval
    assert (found.method, found.low, found.high) == ("bca", theirs.low, theirs.high)


def test_one_comparison_is_the_paired_test():
    (found,) = compare(VALUES, [("second", "first")])
    differences = [SECOND[n] - FIRST[n] for n in FIRST]
    assert found.p == pytest.approx(different(differences))
    assert found.interval == interval(differences, method="t")
    (drawn,) = compare(VALUES, [("second", "first")], method="bca")
    assert drawn.interval == interval(differences, method="bca")
    said = found.sentence("sleep")
    assert said.startswith("sleep of second less that of first: +1.58")
    assert "10 common seeds, p = 0.00283)" in said
    assert said.endswith("second is better than first.")
    assert found.sentence("loss", lower=True).endswith("second is worse than first.")


def test_p_values_are_corrected_for_all_comparisons():
    both = compare(VALUES, [("second", "first"), ("second", "third")])
    alone = [compare(VALUES, [pair])[0] for pair in (("second", "first"), ("second", "third"))]
    low, high = sorted(each.p for each in alone)
    assert sorted(each.p for each in both) == pytest.approx([2 * low, max(2 * low, high)])
    assert "corrected for 2 comparisons" in both[0].sentence()


def test_a_margin_is_tested_and_the_seeds_for_it_are_told():
    values = {"a": {n: 0.9 + 0.01 * (-1) ** n for n in range(6)}, "b": dict.fromkeys(range(6), 0.9)}
    (near,) = compare(values, [("a", "b")], margin=0.02)
    assert near.p_margin == pytest.approx(equivalent([0.01 * (-1) ** n for n in range(6)], 0.02))
    assert "That they differ by less than 0.02 is shown" in near.sentence()
    (far,) = compare(values, [("a", "b")], margin=0.005)
    said = far.sentence()
    assert "does not show that there is none" in said
    assert "by less than 0.005 is not shown" in said
    assert f"{far.needed} new common seeds would show it with probability 0.9" in said
    assert "fix that number before you look at their results" in said


def test_two_seeds_that_happen_to_agree_show_nothing():
    values = {"a": {0: 0.85, 1: 0.90}, "b": {0: 0.84, 1: 0.89}}
    (found,) = compare(values, [("a", "b")], margin=0.02)
    assert found.sentence() == (
        "accuracy of a less that of b: +0.0100 (the same for all 2 common seeds, so without an "
        "interval, p = 0.5). No difference was shown, which does not show that there is none. That "
        "they differ by less than 0.02 is not shown (p = 0.25). If they do not differ, and vary as "
        "here, 5 new common seeds would show it with probability 0.9: fix that number before you "
        "look at their results."
    )


def test_seeds_are_told_for_all_comparisons_together():
    draw = np.random.default_rng(0)
    values = {name: dict(enumerate(draw.normal(0, 1, 10))) for name in "abcd"}
    pairs = [("a", other) for other in "bcd"]
    for found in compare(values, pairs, margin=0.5):
        (alone,) = compare(values, [(found.ours, found.theirs)], margin=0.5)
        assert found.needed > alone.needed


def test_a_name_without_values_is_refused():
    with pytest.raises(ConfigError, match="no values of 'fourth'; there are first, second"):
        compare(VALUES, [("first", "fourth")])


def test_where_a_difference_was_shown_nobody_is_told_to_look_for_none():
    (found,) = compare(VALUES, [("second", "first")], margin=0.5)
    assert "by less than 0.5 is not shown" in found.sentence()
    assert "new common seeds" not in found.sentence()


@pytest.mark.slow
def test_the_seeds_that_are_told_give_the_power_that_is_told():
    draw, runs, shown = np.random.default_rng(0), 400, 0
    pilot = {"a": dict(enumerate(draw.normal(0, 1, 200))), "b": dict.fromkeys(range(200), 0.0)}
    (found,) = compare(pilot, [("a", "b")], margin=0.5)
    deviation = np.std(list(pilot["a"].values()), ddof=1)
    for _ in range(runs):
        shown += equivalent(draw.normal(0, deviation, found.needed), 0.5) < 0.05
    assert 0.84 <= shown / runs <= 0.98  # four deviations of a share of 0.9 are 0.06


@pytest.mark.slow
def test_false_claims_are_as_rare_as_the_level():
    draw, runs = np.random.default_rng(1), 200
    names, seeds, wrong, close = "abcd", range(6), 0, 0
    pairs = [("a", other) for other in "bcd"]
    for _ in range(runs):
        values = {n: dict(enumerate(draw.normal(0, 1, len(seeds)))) for n in names}
        wrong += any(found.p < 0.05 for found in compare(values, pairs))
        # At the margin itself: "closer than that" is false.
        shifted = {"a": values["a"], "b": {n: v + 1.0 for n, v in values["b"].items()}}
        (found,) = compare(shifted, [("a", "b")], margin=1.0)
        close += found.p_margin < 0.05
    assert wrong / runs <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / runs)  # any of three: Holm
    assert close / runs <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / runs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "count", "least"),
    [("t", 3, 0.89), ("t", 5, 0.89), ("bca", 10, 0.84), ("bca", 30, 0.87)],
)
def test_intervals_of_few_values_cover_the_mean(method, count, least):
    draw, runs, covered = np.random.default_rng(count), 200, 0
    for _ in range(runs):
        found = interval(draw.normal(0.9, 0.01, size=count), method=method)
        covered += found.low <= 0.9 <= found.high
    # The bootstrap of few values is too narrow: in 1000 runs 0.90 for 10 values, 0.92 for 20.
    assert least <= covered / runs <= 0.995  # four deviations on either side


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ConfigError, match="alpha is between 0 and 1"):
        compare(VALUES, [("first", "second")], alpha=5)
    lost = {**VALUES, "lost": {**FIRST, 3: float("nan")}}
    with pytest.raises(RunError, match=r"seeds \[3\] are missing"):
        compare(lost, [("first", "lost")])
