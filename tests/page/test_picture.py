from __future__ import annotations

from anarchic.page.picture import (
    LISTED,
    POINTS,
    curves,
    everyone,
    head,
    listed,
    metrics_first,
    thinned,
)


def worker(name, share=0.0, seen_s=0.0, marks=(), updates=1):
    facts = {"worker": name, "share": share, "seen_s": seen_s, "updates": updates}
    return {**facts, "marks": list(marks)}


def test_all_of_a_few_workers_are_listed_the_most_influential_first():
    found = listed([worker("ann", 0.2), worker("bob", 0.5), worker("cleo", 0.3)])
    assert [w["worker"] for w in found] == ["bob", "cleo", "ann"]


def test_of_many_the_top_the_unusual_and_those_heard_last_are_listed():
    many = [worker(f"w{i}", share=(10_000 - i) / 1e8, seen_s=float(i)) for i in range(10_000)]
    many.append(worker("max", share=0.0, marks=["norm"]))
    names = [w["worker"] for w in listed(many)]
    assert len(names) == LISTED
    assert {"w0", "w15", "max", "w9999"} <= set(names)
    assert "w5000" not in names


def test_curves_keep_the_first_and_the_last_point_and_put_accuracy_first():
    rows = [{"round": i, "virtual_s": float(i), "loss": 1.0, "accuracy": 0.5} for i in range(5000)]
    found = curves(rows)
    assert found["metrics"] == ["accuracy", "loss"]
    assert len(found["rows"]) == POINTS
    assert (found["rows"][0][0], found["rows"][-1][0], found["count"]) == (0, 4999, 5000)


def test_a_value_that_is_not_finite_is_left_out():
    found = curves([{"round": 1, "loss": float("inf")}, {"round": 2, "loss": None}])
    assert found["rows"] == [[1, None, None], [2, None, None]]


def test_thinning_leaves_few_rows_alone():
    assert thinned([1, 2, 3], 3) == [1, 2, 3]
    assert thinned(list(range(9)), 3) == [0, 4, 8]


def test_everyone_counts_those_who_are_not_listed():
    found = everyone([worker("ann", 0.5, marks=["loss"])], {"workers": 3, "share": 0.5})
    assert (found["known"], found["unusual"], found["influence"]["workers"]) == (4, 1, 4)


def test_the_head_has_the_most_frequent_refusals():
    found = head({"run": "a", "refusals": {f"code{i}": i for i in range(50)}})
    assert len(found["refusals"]) == 20
    assert next(iter(found["refusals"])) == "code49"


def test_counts_are_no_metrics_whatever_comes_first():
    rows = [
        {"round": 60, "refused": 6, "steps_in_vain": 30, "clipped": 2, "loss": 1.0, "accuracy": 0.5}
    ]
    assert curves(rows)["metrics"] == ["accuracy", "loss"]
    assert metrics_first(rows[0]) == ["accuracy", "loss"]
