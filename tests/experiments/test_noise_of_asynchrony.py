"""One timetable for all rules, and arrivals from uniform to skewed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from anarchic.participation import ConstantSteps, Sampler
from anarchic.sim.run import Run
from tests.experiments.run_files import names_of

run = names_of("noise-of-asynchrony")


def test_zipf_goes_from_uniform_to_skewed():
    assert run.zipf(0.0) == pytest.approx([0.1] * 10)
    skewed = run.zipf(3.0)
    assert sum(skewed) == pytest.approx(1)
    assert skewed[0] / skewed[9] == pytest.approx(1000)


def test_one_by_one_keeps_the_visits_and_counts_versions_in_updates():
    table = Sampler(10, 5, ConstantSteps(5), versions_back=3).timetable(0, 20)
    single = run.one_by_one(table)
    single.check()
    assert (single.worker == table.worker).all()
    late = table.staleness[5 * 7 : 5 * 8]  # of the eighth round
    assert (single.staleness[5 * 7 : 5 * 8] == 5 * late + np.arange(5)).all()


def test_fedasync_is_read_at_the_rounds_of_the_others():
    rows = [{"round": n, "accuracy": n / 1000, "loss": 1.0} for n in range(101)]
    found = run.read_fedasync(Run(np.zeros(1), rows, {}))
    assert found["rounds"] == 20
    assert found["last10"] == pytest.approx(np.mean(range(55, 101, 5)) / 1000)
