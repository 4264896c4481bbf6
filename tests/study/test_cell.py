from __future__ import annotations

import json
from dataclasses import replace

import pytest

from anarchic.errors import ConfigError
from anarchic.sim.settings import Settings
from anarchic.study import Cell, Job
from anarchic.train.compute import Compute
from tests.study.make import cell


def trained(**settings):
    return Cell(name="a", task="lr", settings=Settings(**settings))


def recorded(cell):
    return json.loads(json.dumps(cell.asked))


def test_a_result_counts_whatever_it_was_computed_on():
    there = trained(data="mnist", data_dir="there", seed=3)
    assert trained(data="mnist").answered_by(recorded(there))


def test_a_result_with_other_settings_does_not_count():
    assert not trained(rounds=150).answered_by(recorded(trained(rounds=151)))
    assert not cell(base=0.5).answered_by({"base": 0.6})


def test_a_setting_that_did_not_exist_yet_had_its_default():
    old = recorded(trained())
    del old["clip"]
    assert trained().answered_by(old)
    assert not trained(clip=1.0).answered_by(old)


def test_a_missing_setting_of_a_mapping_had_its_default_too():
    old = {"clip": None, "who": "race"}
    now = replace(cell(), settings={**old, "server_options": {}})
    assert now.answered_by(old)
    assert not replace(now, settings={**old, "server_options": {"beta": 0.5}}).answered_by(old)


def test_tuples_equal_the_lists_in_json():
    biased = trained(workers=2, arrival_probs=(0.9, 0.1))
    assert biased.answered_by(recorded(biased))


def test_a_smoke_run_cannot_be_taken_for_the_cell():
    for full in (trained(data="mnist"), cell()):
        assert not full.answered_by(recorded(full.smoke()))
        assert full.smoke().answered_by(recorded(full.smoke()))


def test_a_job_has_settings_with_its_seed_and_a_compute_record_with_its_device():
    job = Job(trained(rounds=7), seed=4, device="cuda", precision="bf16", graphs=False)
    assert (job.experiment().rounds, job.experiment().seed) == (7, 4)
    there = {"device": "cuda", "precision": "bf16", "graphs": False}
    assert job.compute == Compute(**there, compiled=True)


def test_a_job_makes_settings_of_a_mapping_and_tiny_ones_in_a_smoke_run():
    asked = {"data": "mnist", "rounds": 7, "workers": 2, "arrival_probs": [0.9, 0.1]}
    full = Job(cell(), seed=4).settings_of(asked)
    assert (full.data, full.rounds, full.arrival_probs, full.seed) == ("mnist", 7, (0.9, 0.1), 4)
    smoke = Job(cell(), seed=4, smoke=True).settings_of({**asked, "smoke": True})
    assert (smoke.data, smoke.rounds, smoke.workers, smoke.seed) == ("digits", 3, 2, 4)


def test_what_cannot_be_a_cell_is_refused():
    with pytest.raises(ConfigError, match="letters, digits"):
        replace(trained(), name="p/1")
    with pytest.raises(ConfigError, match="one of the two"):
        replace(cell(), train=lambda job: None)
    with pytest.raises(ConfigError, match="give train or measure"):
        Cell(name="a", task="t", settings={"base": 1})
