"""An hour of virtual traffic with a fault every few minutes; ``make soak`` runs a day of it."""

from __future__ import annotations

import pytest

from tests.faults.soak import soak


@pytest.mark.slow
def test_nothing_is_lost_or_counted_twice_and_nothing_grows():
    found = soak(seed=1, hours=1.0, samples=12)
    assert found.outcome.violation is None, found.text()
    assert found.outcome.checks["compacted"] > 50
    assert found.outcome.happened.total() > 10
    assert found.samples[-1].folded > 150
    assert found.samples[-1].trace < 0.8 * found.samples[-1].folded
    assert found.is_flat, found.text()
