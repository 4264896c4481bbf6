"""The formulas of the scaling plan: by hand, and against the queue simulated."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.fleet import Assumptions, Collector, Plan
from benchmarks.million import (
    IDLE,
    Compared,
    presummed,
    quantile,
    share_awake,
    simulate,
    staleness_shares,
)
from benchmarks.queueing import Queue, erlang_b, erlang_c, finite_room, serve
from benchmarks.record import RESULTS, read, short
from benchmarks.scaling import measured_collector, plans_for
from benchmarks.scaling_page import (
    DOCS,
    costs_table,
    inputs_table,
    measured_table,
    outputs_table,
    put_between,
    rows_table,
    size,
)


def test_erlangs_formulas() -> None:
    assert erlang_b(1, 1.0) == pytest.approx(1 / 2)
    assert erlang_b(2, 1.0) == pytest.approx(1 / 5)  # (1/2) / (1 + 1 + 1/2)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(1, 0.7) == pytest.approx(0.7)  # one place: the share of time it is taken
    assert erlang_c(2, 2.0) == 1.0


def test_a_finite_room() -> None:
    assert finite_room(1, 1, 0.5) == pytest.approx(1 / 7)  # states 1, 1/2, 1/4
    assert finite_room(1, 3, 1.0) == pytest.approx(1 / 5)  # five states, all alike
    assert finite_room(2, 0, 1.0) == pytest.approx(erlang_b(2, 1.0))
    assert finite_room(8, 10_000, 16.0) == pytest.approx(0.5)  # twice too many: half must go


def test_the_wait_in_a_single_place() -> None:
    exponential = Queue(1, 10, service_s=1.0, variability=1.0)
    assert exponential.wait_s(0.5) == pytest.approx(1.0)  # rho / (1 - rho)
    constant = Queue(1, 10, service_s=1.0, variability=0.0)
    assert constant.wait_s(0.5) == pytest.approx(0.5)  # half of it: Pollaczek and Khinchine
    assert exponential.wait_s(1.0) == float("inf")


def test_the_wait_in_two_places() -> None:
    queue = Queue(2, 10, service_s=1.0)
    assert queue.capacity == 2.0
    assert queue.wait_s(1.0) == pytest.approx(1 / 3)  # C = 1/3, over 2 - 1


def test_tries_until_an_update_is_taken() -> None:
    queue = Queue(1, 1, service_s=1.0)
    tries = queue.tries(0.4)
    # x tries a second of which refused(x) fail leave 0.4 updates a second.
    assert 0.4 * tries * (1 - queue.refused(0.4 * tries)) == pytest.approx(0.4)
    assert queue.tries(1.0) == float("inf")


def test_two_places_and_a_room_of_one_by_hand() -> None:
    queue = Queue(2, 1, service_s=10.0, variability=0.0)
    came = np.array([0.0, 1.0, 2.0, 3.0, 10.5])
    served = serve(queue, came, np.random.default_rng(0))
    # The third waits for the first's place; the fourth finds no room; the fifth waits to 11.
    assert served.started_s.tolist() == [0.0, 1.0, 10.0, 11.0]
    assert served.wait_s.tolist() == [0.0, 0.0, 8.0, 0.5]
    assert served.done_s.tolist() == [10.0, 11.0, 20.0, 21.0]
    assert served.refusals == 1


def test_the_refused_come_again() -> None:
    queue = Queue(1, 0, service_s=10.0, variability=0.0)
    served = serve(
        queue, np.array([0.0, 1.0]), np.random.default_rng(0), again_s=lambda n: 4.0 * (n + 1)
    )
    assert served.arrived_s.tolist() == [0.0, 13.0]  # refused at 1 and at 5, taken at 13
    assert served.refusals == 2


@pytest.mark.parametrize(("variability", "close"), [(1.0, 0.06), (0.1, 0.1)])
def test_the_simulated_wait_is_the_formulas(variability: float, close: float) -> None:
    queue = Queue(8, 10**9, service_s=1.0, variability=variability)
    rng = np.random.default_rng(3)
    came = np.cumsum(rng.exponential(1 / 6.0, 100_000))  # load 0.75
    assert serve(queue, came, rng).wait_s.mean() == pytest.approx(queue.wait_s(6.0), rel=close)


def test_the_simulated_refusals_are_the_formulas() -> None:
    queue = Queue(4, 3, service_s=1.0)
    rng = np.random.default_rng(4)
    came = np.cumsum(rng.exponential(1 / 4.0, 60_000))
    refused = serve(queue, came, rng).refusals / len(came)
    assert refused == pytest.approx(queue.refused(4.0), rel=0.05)


def test_shares_awake_over_the_day() -> None:
    first, last = IDLE.wakes_h
    middle = (first + last) / 2
    hours = np.array([first, middle, last, first + IDLE.awake_h, middle + IDLE.awake_h, 23.0])
    assert share_awake(hours) == pytest.approx([0, 0.5, 1, 1, 0.5, 0])


def test_staleness_of_whole_and_half_rounds() -> None:
    assert staleness_shares(np.array([2.0])).tolist() == [0, 0, 1, 0]
    shares = staleness_shares(np.array([0.5, 1.25]))
    assert shares.tolist() == [0.25, 0.625, 0.125]  # (1/2 + 0, 1/2 + 3/4, 1/4) / 2
    assert quantile(shares, 0.8) == 1


def test_partial_sums_differ_by_rounding_alone() -> None:
    one = presummed(np.random.default_rng(0), 1, dim=50, m=200)
    many = presummed(np.random.default_rng(0), 7, dim=50, m=200)
    assert one <= 1e-6
    assert many <= 1e-5


HAND = Assumptions(
    devices=864_000, visits_a_day=1, peak=2, utilisation=0.5, visit_s=90, staleness=4,
    pointer_s=20, edges=5, line=1e6, root_s=1, uplink=1e5, copies=3, kept_h=1,
    collector_h=1, root_h=2, log_gb=0, egress_gb=0.1, origin_gb=0, requests=0,
)  # fmt: skip


def hand_plan() -> Plan:
    collector = Collector.through(
        (0, 1.0), (1e6, 0.5), disk=1e7, places=8, room=256, variability=1.0
    )
    return Plan(HAND, collector, 1e6)


def test_a_plan_by_hand() -> None:
    plan = hand_plan()
    assert plan.collector.rate(3e6) == pytest.approx(0.25)  # a second, and one for every MB
    assert (plan.pushes, plan.peak_pushes) == (10, 20)
    assert plan.collectors == 80  # 20 / (0.5 * 0.5)
    assert plan.roots == 80  # 80 MB in a second of 1 MB/s each
    assert plan.log_machines == 8  # two more copies of 20 MB/s, 5 MB/s a disk
    assert plan.publication_s == pytest.approx(3.0)
    assert plan.m == 516 + np.ceil(20 * plan.wait_s / 4 - 1)  # 20 * (90 + 10 + 3 + wait) / 4
    assert plan.hits == pytest.approx(1 - 5 / plan.m)
    assert plan.log_held == pytest.approx(864_000 * 1e6 / 24 * 3)
    assert plan.uploads == pytest.approx(2.5 + 4 * 2.5**0.5)
    costs = plan.costs()
    assert costs["collectors, as many as the peak needs"] == 80 * 720
    assert costs["CDN to devices"] == pytest.approx(864_000 * 30 * 1e-3 * 0.1)


@pytest.mark.slow
def test_a_small_crowd_behaves_as_the_model_says() -> None:
    collector = Collector.through(
        (4e4, 20.0), (4e6, 2.0), disk=1e8, places=8, room=256, variability=0.5
    )
    found = simulate(collector, 10_000)
    rows = {row.name.split(",")[0]: row for row in found.rows}
    assert abs(rows["updates in a day"].difference) < 0.02
    assert abs(rows["updates per second at the peak"].difference) < 0.05
    assert abs(rows["mean staleness at the peak"].difference) < 0.05
    assert found.facts["updates"] > 90_000


def test_a_formula_that_is_off_is_missed() -> None:
    assert Compared("x", "", 1.0, 1.09, most=0.1).met
    assert not Compared("x", "", 1.0, 1.11, most=0.1).met


def test_tables_replace_what_stands_between_their_markers() -> None:
    begin, end = (f"<!-- benchmarks.scaling: t {word} -->\n" for word in ("begin", "end"))
    text = f"a\n{begin}old\n{end}b\n"
    assert put_between(text, "t", "new") == f"a\n{begin}\nnew\n\n{end}b\n"
    with pytest.raises(ValueError, match="markers"):
        put_between(text, "u", "new")
    assert [size(count) for count in (4e4, 1.5e9, 3e17)] == ["40 KB", "1.5 GB", "300 PB"]


@pytest.mark.parametrize("table", [inputs_table, outputs_table, costs_table, rows_table])
def test_the_page_shows_the_plan(table: Callable[..., str]) -> None:
    plans = plans_for(measured_collector(read()["one_machine"]))
    made = table(plans["4 MB"] if table is inputs_table else plans)
    assert made in (DOCS / "scaling.md").read_text(encoding="utf-8")


def test_the_page_shows_what_was_measured_and_simulated() -> None:
    page = (DOCS / "scaling.md").read_text(encoding="utf-8")
    assert measured_table(read()["one_machine"]) in page
    lines = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    (record,) = (line for line in lines if line["name"] == "scaling")
    for row in record["compared"]:
        assert f"| {row['name']} | {short(row['model'])}" in page
        assert f"| {row['difference']:+.1%} |" in page
