"""One timetable for all rules, arrivals from uniform to skewed, and the tables of both."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from anarchic.participation import ConstantSteps, Sampler
from anarchic.sim.run import Run
from anarchic.study.findings import Findings, Outcome
from tests.experiments.run_files import names_of, rows_of
from tests.study.make import result

run = names_of("noise-of-asynchrony")


def test_zipf_goes_from_uniform_to_skewed():
    assert run.zipf(0.0) == pytest.approx([0.1] * 10)
    skewed = run.zipf(3.0)
    assert sum(skewed) == pytest.approx(1)
    assert skewed[0] / skewed[9] == pytest.approx(1000)


def test_one_by_one_keeps_the_visits_and_counts_versions_in_updates():
    table = Sampler(10, 5, ConstantSteps(5), max_staleness=2).timetable(0, 20)
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


def findings(**ours):
    """All cells: 0.9 each, but for what is given by rule and place: afa_cd_50, afa_cs_s3."""
    lines = []
    for cell in run.STUDY.cells:
        columns = dict(cell.columns)
        rule = columns.pop("rule").replace("-", "_")
        ((x, at),) = columns.items()
        value = ours.get(f"{rule}_{'s' if x == 's' else ''}{at:g}", 0.9)
        lines.append(Outcome(cell, [result(cell, 0, last10=value)]))
    return Findings(lines)


def test_the_table_has_what_the_discounts_change_by_delay():
    found = findings(fedbuff_5=0.87, fedbuff_100=0.95, fedasync_0=0.8)
    buffered, single = rows_of(run.more_tables(found))
    minus = "\N{MINUS SIGN}"
    zero = "+0.0000"
    assert buffered[1:] == [zero, zero, zero, f"{minus}0.0300", zero, zero, zero, "+0.0500"]
    assert single[1:5] == [f"{minus}0.1000", zero, zero, "+0.0300"]
    assert single[-1] == f"{minus}0.0500"


def test_each_claim_can_be_missed():
    def met(**ours):
        found = findings(**ours)
        return [claim.holds(claim.measured(found)) for claim in run.STUDY.claims]

    assert met(fedbuff_100=0.95, afa_cd_s3=0.8) == [True] * 5
    assert met(afa_cd_10=0.8, afa_cs_10=0.8, afa_cs_s3=0.8) == [False] * 5


def test_there_is_no_table_of_a_sweep_that_is_not_complete():
    whole = findings()
    assert run.more_tables(Findings([*whole.outcomes, Outcome(whole.outcomes[0].cell)])) == ""
