from __future__ import annotations

import numpy as np
import pytest

from anarchic.errors import RunError
from anarchic.sim.run import Run
from anarchic.study import Job, Result
from anarchic.study.results import accuracies, read_cell, result_of, thin
from tests.study.make import cell, measured, result


def run(accuracy_of, rounds):
    rows = [
        {"round": r, "virtual_s": None, "accuracy": accuracy_of(r), "loss": 1.0} for r in rounds
    ]
    return Run(np.zeros(1), rows, {})


def test_accuracy_at_the_end_by_several_measures():
    found = accuracies(run(lambda r: r / 100, range(101)))
    assert found["final"] == found["best"] == 1.0
    assert found["last10"] == pytest.approx(0.955)  # 0.91 .. 1.00
    assert found["last50"] == pytest.approx(0.755)  # 0.51 .. 1.00
    assert found["last50_spread"] == pytest.approx(np.sqrt((50**2 - 1) / 12) / 100)
    assert found["rounds"] == 100
    assert list(found["curve"]) == ["round", "accuracy", "loss"]  # there is no clock


def test_a_long_curve_is_thinned_but_keeps_its_ends():
    kept = thin({"round": list(range(10_001))})["round"]
    assert len(kept) <= 130
    assert kept[0] == 0
    assert kept[-10:] == list(range(9_991, 10_001))
    assert thin({"round": [0, 1, 2]}) == {"round": [0, 1, 2]}


def test_a_result_comes_back_from_its_file(tmp_path):
    job = Job(cell("p1"), seed=2)
    made = result_of(job, measured(job) | {"fast": np.float32(0.25)}, share_s=1.234)
    path = made.write(tmp_path)
    assert path == tmp_path / "t" / "p1.seed2.json"
    assert Result.read(path) == made
    assert made.numbers == {"value": 0.54, "fast": 0.25}
    assert made.curve == {"round": [0, 1], "accuracy": [0, 0.5]}


def test_results_are_read_by_seed_and_only_those_of_the_cell(tmp_path):
    for seed in (10, 2):
        result(cell(), seed, value=1.0).write(tmp_path)
    result(cell(base=0.9), 3, value=1.0).write(tmp_path)
    assert [r.seed for r in read_cell(tmp_path, cell())] == [2, 10]


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "t" / "a.seed0.json"
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(RunError, match=r"a\.seed0\.json is not a result"):
        read_cell(tmp_path, cell())
