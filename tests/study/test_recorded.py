"""The runs of a sweep, as others read recorded runs."""

import pytest

from anarchic import simulate, sweep
from anarchic.report.runs import read_run
from anarchic.report.speedup import costs_of
from anarchic.sim.settings import Settings
from anarchic.study.recorded import runs_of


def test_a_run_of_a_sweep_is_read_as_the_same_run_alone(tmp_path):
    sweep({"rounds": 8, "eval_every": 1}, m=[2, 4], seed=[0, 1], out=tmp_path / "sweep")
    found = runs_of(tmp_path / "sweep")
    assert [run.name for run in found][:2] == ["sweep/m=2.seed0", "sweep/m=2.seed1"]
    assert [(run.settings["m"], run.settings["seed"]) for run in found][2:] == [(4, 0), (4, 1)]
    simulate(Settings(rounds=8, eval_every=1, m=4, seed=1), out=tmp_path / "alone")
    alone = read_run(tmp_path / "alone")
    for one, other in zip(found[3].metrics, alone.metrics, strict=True):
        assert one["round"] == other["round"]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)  # five digits
    asked = {"over": "m", "to": "loss=1.7", "against": "updates"}
    assert costs_of(found[3:], **asked).by_size == {
        4: [pytest.approx(costs_of([alone], **asked).by_size[4][0], rel=1e-3)]
    }
