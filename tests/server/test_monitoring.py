"""Counters with numbers to be counted by hand."""

from __future__ import annotations

from anarchic import Snapshot, wire
from anarchic.server.monitoring import ServerMetrics
from anarchic.server.published import PublishedModel, PublishedModels
from tests.server.make import LAYOUT, first_params


def told(metrics):
    """What Prometheus is told, without the comments and the moments of creation."""
    lines = metrics.text().decode().splitlines()
    return {line for line in lines if not line.startswith("#") and "_created" not in line}


def test_everything_is_counted():
    published = PublishedModels("run-a", store=None)
    metrics = ServerMetrics(published)
    assert "anarchic_version -1.0" in told(metrics)
    body = wire.encode_snapshot(LAYOUT, Snapshot(3, first_params()), "run-a", loss=0.25)
    assert "anarchic_loss NaN" in told(metrics)
    published.post(PublishedModel("run-a", 3, body, *wire.snapshot_facts(body)))
    metrics.received("accepted", 100)
    metrics.received("accepted", 20)
    metrics.received("duplicate", 100)
    metrics.refused("stale")
    metrics.folded(2, clipped=1)
    assert told(metrics) == {
        'anarchic_updates_total{outcome="accepted"} 2.0',
        'anarchic_updates_total{outcome="duplicate"} 1.0',
        "anarchic_update_bytes_total 220.0",
        'anarchic_refusals_total{code="stale"} 1.0',
        "anarchic_updates_folded_total 2.0",
        "anarchic_updates_clipped_total 1.0",
        "anarchic_updates_set_aside_total 0.0",
        "anarchic_version 3.0",
        "anarchic_loss 0.25",
    }
    assert metrics.counts == {
        "accepted": 2,
        "duplicate": 1,
        "refused": 1,
        "folded": 2,
        "set_aside": 0,
    }


def test_the_end_of_the_certificate_is_shown_by_servers_that_have_one():
    metrics = ServerMetrics(PublishedModels("run-a", store=None))
    assert "certificate" not in metrics.text().decode()
    for seconds in (1.8e9, 1.9e9):
        metrics.certificate_expires(seconds)
    assert "anarchic_certificate_expires_seconds 1.9e+09" in told(metrics)
