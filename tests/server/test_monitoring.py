"""Counters with numbers to be counted by hand, read by Prometheus' own parser."""

from __future__ import annotations

import asyncio
from math import inf, isnan

from prometheus_client.parser import text_string_to_metric_families as parse

from anarchic import Snapshot, wire
from anarchic.server import monitoring
from anarchic.server.monitoring import ACTIVE_S, MOST_EVALUATIONS, ServerMetrics
from anarchic.server.published import PublishedModel, PublishedModels
from anarchic.server.records import NewUpdate
from tests.server.live import serving, until
from tests.server.make import LAYOUT, body, first_params


class Still:
    """A clock that a test moves."""

    now = 1000.0

    def monotonic(self):
        return self.now

    time = monotonic


def made(clock=None):
    published = PublishedModels("run-a", store=None)
    return published, ServerMetrics(published, clock or Still())


def read(text):
    """Samples by (name, labels), without those of the process and the moments of creation."""
    found = {}
    for family in parse(text):
        assert family.documentation, f"{family.name} says nothing of itself"
        for sample in family.samples:
            key = (sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items())))
            assert key not in found, f"{key} stands there twice"
            found[key] = sample.value
    return {key: value for key, value in found.items() if not key[0].endswith("_created")}


def own(metrics):
    """What Prometheus is told of the run, but for histograms."""
    found = read(metrics.text().decode())
    apart = ("process_", "anarchic_staleness", "anarchic_norm", "anarchic_local", "anarchic_store")
    return {key: value for key, value in found.items() if not key[0].startswith(apart)}


def stored(worker="ann", norm=1.0, steps=5):
    return NewUpdate(
        worker=worker, id="1", digest=b"", base_version=0, local_steps=steps, local_lr=0.1,
        samples=1, norm=norm, received_s=0.0, body=b"",
    )  # fmt: skip


def test_everything_is_counted():
    published, metrics = made()
    assert own(metrics)[("anarchic_version",)] == -1
    assert isnan(own(metrics)[("anarchic_loss",)])
    body = wire.encode_snapshot(LAYOUT, Snapshot(3, first_params()), "run-a", loss=0.25)
    published.post(PublishedModel("run-a", 3, body, *wire.snapshot_facts(body)))
    metrics.received("accepted", 100)
    metrics.received("accepted", 20)
    metrics.received("duplicate", 100)
    metrics.refused("stale")
    metrics.folded(2, clipped=1)
    assert own(metrics) == {
        ("anarchic_updates_total", "outcome=accepted"): 2,
        ("anarchic_updates_total", "outcome=duplicate"): 1,
        ("anarchic_update_bytes_total",): 220,
        ("anarchic_refusals_total", "code=stale"): 1,
        ("anarchic_updates_folded_total",): 2,
        ("anarchic_updates_clipped_total",): 1,
        ("anarchic_updates_set_aside_total",): 0,
        ("anarchic_active_workers",): 0,
        ("anarchic_version",): 3,
        ("anarchic_loss",): 0.25,
    }
    assert metrics.counts == {
        "accepted": 2,
        "duplicate": 1,
        "refused": 1,
        "folded": 2,
        "set_aside": 0,
    }


def test_the_end_of_the_certificate_is_shown_by_servers_that_have_one():
    _, metrics = made()
    assert "certificate" not in metrics.text().decode()
    for seconds in (1.8e9, 1.9e9):
        metrics.certificate_expires(seconds)
    assert own(metrics)[("anarchic_certificate_expires_seconds",)] == 1.9e9


def buckets(metrics, name, *labels):
    """Cumulative counts by upper bound, of the buckets that add something."""
    found, last = {}, 0.0
    for key, value in read(metrics.text().decode()).items():
        if key[0] == f"{name}_bucket" and set(labels) < set(key[1:]):
            (bound,) = (word[3:] for word in key[1:] if word.startswith("le="))
            if value != last:
                found[float(bound)] = last = value
    return found


def test_histograms_hold_staleness_norms_steps_and_times_of_the_store():
    _, metrics = made()
    metrics.stored([stored(norm=0.02, steps=5), stored(norm=2e6, steps=6)], 0.004)
    metrics.stored([], 0.4)  # duplicates
    for staleness in (0, 0, 3, 5000):
        metrics.folds(staleness)
    metrics.published(0.2)
    assert buckets(metrics, "anarchic_norm") == {0.03: 1, inf: 2}
    assert buckets(metrics, "anarchic_local_steps") == {5: 1, 10: 2}
    assert buckets(metrics, "anarchic_staleness") == {0: 2, 4: 3, inf: 4}
    assert buckets(metrics, "anarchic_store_seconds", "operation=append") == {0.005: 1, 0.5: 2}
    assert buckets(metrics, "anarchic_store_seconds", "operation=publish") == {0.25: 1}
    found = read(metrics.text().decode())
    assert found[("anarchic_staleness_sum",)] == 5003
    assert found[("anarchic_staleness_count",)] == 4


def test_active_workers_are_those_of_the_last_minutes_and_their_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(monitoring, "MOST_ACTIVE", 3)
    clock = Still()
    _, metrics = made(clock)

    def active():
        return own(metrics)[("anarchic_active_workers",)]

    metrics.stored(map(stored, ["ann", "bob", "ann"]), 0.1)
    assert active() == 2
    clock.now += ACTIVE_S - 1
    metrics.stored([stored("ann")], 0.1)
    assert active() == 2
    clock.now += 2
    assert active() == 1
    metrics.stored(map(stored, ["cid", "dan", "eve", "fay"]), 0.1)
    assert active() == 3


def test_evaluations_are_gauges_with_plain_names_and_a_bounded_number():
    _, metrics = made()
    latest = {"found": None}
    metrics.evaluations(lambda: latest["found"])
    assert isnan(own(metrics)[("anarchic_evaluation_version",)])
    hostile = 'f1 "of"\n{class}\ud800'
    latest["found"] = {"accuracy": 0.5, hostile: None, "f1.b": 1, "f1 b": 2, "version": 7}
    found = {k: v for k, v in own(metrics).items() if k[0].startswith("anarchic_evaluation")}
    assert isnan(found.pop(("anarchic_evaluation", "metric=f1__of___class__")))
    assert found == {
        ("anarchic_evaluation", "metric=accuracy"): 0.5,
        ("anarchic_evaluation", "metric=f1_b"): 1,  # the first of two that become one
        ("anarchic_evaluation_version",): 7,
    }
    latest["found"] = {f"class {n}": n for n in range(1000)}
    names = [key for key in own(metrics) if key[0] == "anarchic_evaluation"]
    assert len(names) == MOST_EVALUATIONS


def test_parts_may_show_numbers_of_their_own():
    _, metrics = made()
    metrics.gauge("anarchic_paused", "1 while the run is paused", lambda: True)
    assert own(metrics)[("anarchic_paused",)] == 1


def test_a_server_tells_what_its_parts_know(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 2}) as (service, client):

            async def shown():
                return read((await client.get("/metrics")).text)

            for worker in ("ann", "bob", "cid"):
                pushed = await client.post("/v1/updates", content=body(worker, local_steps=7))
                assert pushed.status_code == 202
            folded = service.metrics._staleness.counts
            await until(lambda: sum(folded) == 3 and service.published.newest.version == 1)
            await until(lambda: service._disk.used)
            await until(lambda: service.metrics._active.count() == 3)  # it is told after the answer
            found = await shown()
            expected = {"version": 1, "buffered": 1, "leads": 1, "active_workers": 3, "healthy": 1}
            expected |= {"updates_per_step": 2, "store_answers": 1, "paused": 0, "ended": 0}
            assert {name: found[(f"anarchic_{name}",)] for name in expected} == expected
            assert found[("anarchic_store_bytes",)] >= (tmp_path / "run.db").stat().st_size / 2
            assert found[("anarchic_store_free_bytes",)] > 0
            assert found[("anarchic_norm_count",)] == found[("anarchic_staleness_count",)] == 3
            assert found[("anarchic_norm_sum",)] > 0
            assert found[("anarchic_local_steps_sum",)] == 21
            assert found[("anarchic_store_seconds_count", "operation=publish")] == 1
            assert found[("process_resident_memory_bytes",)] > 1e6
            service._patience_s = -1.0  # any wait for the store is too long
            found = await shown()
            assert found[("anarchic_store_answers",)] == found[("anarchic_healthy",)] == 0

    asyncio.run(scenario())


def test_an_update_in_no_current_version_is_as_stale_as_versions_have_passed(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 1}) as (service, client):
            for id in "1234":  # all build on version 0
                await client.post("/v1/updates", content=body("ann", id))
                await until(lambda id=id: service.published.newest.version == int(id))
            found = read((await client.get("/metrics")).text)
            assert found[("anarchic_staleness_sum",)] == 0 + 1 + 2 + 3

    asyncio.run(scenario())
