"""One timetable for all rules, arrivals from uniform to skewed, and what the page says of both."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from anarchic.participation import ConstantSteps, Sampler
from anarchic.sim.run import Run
from anarchic.study.findings import Findings, Line
from tests.experiments.run_files import names_of
from tests.study.make import result

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


def findings(swing=0.05, **ours):
    """All cells: 0.9 each, but for what is given by rule and place: afa_cd_50, afa_cs_s3."""
    lines = []
    for cell in run.STUDY.cells:
        columns = dict(cell.columns)
        rule = columns.pop("rule").replace("-", "_")
        ((x, at),) = columns.items()
        value = ours.get(f"{rule}_{'s' if x == 's' else ''}{at:g}", 0.9)
        spread = swing if at == 50 else 0.01
        lines.append(Line(cell, [result(cell, 0, last10=value, last50_spread=spread)]))
    return Findings(lines)


def test_a_short_delay_is_hardly_felt_only_if_it_costs_no_more_than_a_hundredth():
    told = run.short_delays(findings(afa_cd_10=0.895))
    assert "AFA-CD goes from 0.900 to 0.895" in told
    assert told.endswith("hardly felt.")
    assert run.short_delays(findings(afa_cs_10=0.8)).endswith("AFA-CS from 0.900 to 0.800.")


def test_a_step_is_too_long_only_if_both_lose_and_swing_by_it():
    lost = {"afa_cd_50": 0.6, "afa_cs_50": 0.7}
    told = run.long_delays(findings(**lost))
    assert "0.600 (by seed 0.600 to 0.600) and 0.700" in told
    assert told.endswith(run.TOO_LONG)
    assert run.TOO_LONG not in run.long_delays(findings(afa_cd_50=0.6))
    assert run.TOO_LONG not in run.long_delays(findings(swing=0.01, **lost))


def test_a_discount_costs_and_pays_where_it_does():
    told = run.discounted(findings(fedbuff_5=0.87, fedbuff_10=0.88, fedbuff_100=0.95))
    costs = "costs up to 0.030 at tau = 5, 10 and pays up to 0.050 at tau = 100"
    assert told.endswith(f"{costs}{run.SHORTENS}.")
    assert run.discounted(findings(fedbuff_5=0.95, fedbuff_10=0.88)).endswith(
        "costs up to 0.020 at tau = 10 and pays up to 0.050 at tau = 5."
    )
    assert run.discounted(findings()).endswith("The discount changes nothing.")


def test_fedasync_is_slower_where_it_is():
    every = {f"fedasync_{tau}": 0.8 for tau in run.DELAYS}
    assert "ends below FedBuff at every delay; it goes from 0.800" in run.slower(findings(**every))
    assert "below FedBuff at tau = 1, 50;" in run.slower(findings(fedasync_1=0.8, fedasync_50=0.8))
    assert "nowhere ends below FedBuff" in run.slower(findings())


def test_skew_is_felt_by_whom_it_costs_more_than_a_hundredth():
    assert run.remembered(findings()).startswith("AFA-CS does not feel it, 0.900 to 0.900")
    told = run.remembered(findings(afa_cs_s3=0.88))
    assert told == "AFA-CS feels it, 0.900 to 0.880 from s = 0 to 3."
    told = run.followed(findings(afa_cd_s3=0.88, fedbuff_s3=0.87))
    assert "by AFA-CD from 0.900 to 0.880, FedBuff from 0.900 to 0.870, not by FedAsync" in told
    assert told.endswith(run.NO_REMEDY)
    assert run.NO_REMEDY not in run.followed(findings(afa_cd_s3=0.87, fedbuff_s3=0.88))
    assert run.followed(findings()).endswith("by none of the others.")


def test_nothing_is_told_of_sweeps_that_are_not_complete():
    whole = findings()
    assert run.shown(whole).startswith("## What it shows\n\n**Delay.** From")
    assert run.shown(Findings([*whole.lines, Line(whole.lines[0].cell)])) == ""
