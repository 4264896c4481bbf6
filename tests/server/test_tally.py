"""Numbers of each worker, counted by hand, in bounded memory."""

from __future__ import annotations

import json
import random

import pytest

from anarchic.server.tally import (
    Lately,
    Row,
    Tallies,
    Tally,
    quantile,
    ratio_bucket,
    ratio_in,
    staleness_bucket,
    staleness_in,
)


def row(order, worker="ann", *, base=0, version=None, received_s=1e9):
    made = order + 1 if version is None else version
    return Row(order + 1, worker, base, 5, 0.1, 1.5, received_s, order, made)


def fold(tallies, row, came=1.0, length=1.0, clipped=False, loss=None):
    tallies.fold(row, came, length, clipped=clipped, loss=loss)


def test_an_update_is_counted_with_everything_that_is_known_of_it():
    tallies = Tallies()
    fold(tallies, row(0, version=3, received_s=10.0), came=2.0, length=0.5, loss=0.25)
    fold(tallies, row(1, version=3, base=2, received_s=12.0), clipped=True, loss=0.75)
    fold(tallies, row(2, version=0, received_s=11.0))  # set aside
    assert tallies.counted == 3
    assert tallies.workers["ann"] == Tally(
        updates=2, set_aside=1, clipped=1, influence=1.5, staleness={2: 1, 0: 1},
        losses=2, loss_sum=1.0, loss_last=0.75, first_s=10.0, seen_s=12.0,
    )  # fmt: skip


def test_a_length_is_compared_with_the_median_of_the_others_and_not_with_its_own():
    lately = Lately()
    assert lately.against("ann", 8.0) is None  # nobody to compare with
    assert lately.against("bob", 2.0) == 0.25
    assert lately.against("ann", 8.0) == 4.0
    assert lately.against("eve", 80.0) == 40.0  # against the lower of 2 and 8
    assert lately.against("bob", 4.0) == 0.5  # against the lower of 8 and 80
    for number in range(100):
        lately.against(f"w{number}", 1.0)
    assert len(lately.known) == len(lately._ordered) == 64


def test_quantiles_are_exact_for_small_staleness_and_near_for_large():
    rng = random.Random(3)
    values = sorted(rng.choice((0, 1, 2, 7, 15)) for _ in range(999))
    histogram = {}
    for value in values:
        bucket = staleness_bucket(value)
        histogram[bucket] = histogram.get(bucket, 0) + 1
    for share in (0.5, 0.95):
        assert staleness_in(quantile(histogram, share)) == values[int(share * 999)]
    for value in (16, 17, 100, 999, 12345):
        assert staleness_in(staleness_bucket(value)) == pytest.approx(value, rel=0.045, abs=1)
    for ratio in (1e-5, 0.1, 1.0, 29.0, 1e5):
        assert ratio_in(ratio_bucket(ratio)) == pytest.approx(ratio, rel=0.045)
    assert quantile({}, 0.5) is None


def test_a_tally_survives_json_to_the_last_bit():
    tallies = Tallies()
    for order in range(20):
        fold(tallies, row(order, f"w{order % 3}"), came=0.1 * order + 0.1, length=1 / 3, loss=0.1)
    for tally in tallies.workers.values():
        assert Tally.from_json(json.loads(json.dumps(tally.to_json()))) == tally


def test_a_million_invented_workers_cost_no_more_than_the_busiest():
    tallies = Tallies(most=10)
    for order in range(3000):
        # Each stranger comes once, two workers come all the time.
        name = ("ann", "bob")[order % 2] if order % 3 else f"stranger{order}"
        fold(tallies, row(order, name))
        assert len(tallies.workers) <= 20
    assert {"ann", "bob"} <= tallies.workers.keys()
    assert tallies.workers["ann"].updates == tallies.workers["bob"].updates == 1000
    together = sum(tally.updates for tally in tallies.workers.values()) + tallies.rest.updates
    assert together == 3000
    assert tallies.influence == 3000.0
    assert tallies.rest.workers == 1000 - (len(tallies.workers) - 2)
    assert len(tallies.changed) <= 20
