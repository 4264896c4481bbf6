from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from anarchic import Settings, simulate
from anarchic.errors import RunError
from anarchic.page.picture import LISTED
from anarchic.participation import Sampler, UniformSteps
from anarchic.report.again import settings_again, store_again
from anarchic.report.picture import RunPictures, picture
from anarchic.server.settings import RuleSettings
from anarchic.sim.record import RunDirectory
from tests.report.make import make_run


def test_a_recorded_run_is_a_picture(tmp_path):
    found = picture(make_run(tmp_path / "one", clock=True))
    assert found["head"]["state"] == "finished"
    assert (found["head"]["version"], found["head"]["updates"]) == (2, {"folded": 2})
    assert found["curves"]["metrics"] == ["accuracy", "loss"]
    assert found["curves"]["rows"][-1] == [2, 20.0, 0.8, 0.2]
    assert found["workers"]["axis"] == "version"  # the sampler has no clock
    assert json.dumps(found, allow_nan=False)


def test_who_took_part_is_that_of_the_timetable(tmp_path):
    table = Sampler(100, 5, UniformSteps(1, 9), max_staleness=3).timetable(0, rounds=400)
    settings = {"rule": "afa-cd", "fingerprint": "f", "local_lr": 0.1}
    record = RunDirectory.create(tmp_path / "run", settings, table)
    record.start_metrics([{"round": 400, "accuracy": 0.5}])
    found = picture(tmp_path / "run")
    sent = np.bincount(table.worker)
    for row in found["workers"]["rows"]:
        number = int(row["worker"].split()[1])
        assert row["updates"] == sent[number]
        assert row["share"] == pytest.approx(sent[number] / len(table))
    assert len(found["workers"]["rows"]) == LISTED
    assert (found["everyone"]["known"], found["everyone"]["exact"]) == (100, True)
    steps = dict(found["histograms"]["steps"])
    assert steps == {str(K): int((table.local_steps == K).sum()) for K in range(1, 10)}
    assert found["theory"]["staleness"] == 3


def test_late_updates_that_count_less_have_less_influence(tmp_path):
    table = Sampler(2, 1, UniformSteps(1, 1), max_staleness=4).timetable(0, rounds=200)
    settings = {"rule": "afa-cd", "fingerprint": "f", "m": 1, "staleness_power": 1.0}
    record = RunDirectory.create(tmp_path / "run", settings, table)
    record.start_metrics([{"round": 200, "accuracy": 0.5}])
    weight = 1.0 / (1 + table.staleness)
    expected = weight[table.worker == 0].sum() / weight.sum()
    shares = {r["worker"]: r["share"] for r in picture(tmp_path / "run")["workers"]["rows"]}
    assert shares["worker 0"] == pytest.approx(expected)


def test_a_run_that_has_only_begun_is_empty(tmp_path):
    path = make_run(tmp_path / "one", finished=False)
    (path / "metrics.csv").unlink()
    found = picture(path)
    assert (found["head"]["state"], found["head"]["version"]) == ("running", 0)
    assert found["workers"]["rows"] == []


def test_a_run_that_goes_on_is_read_again(tmp_path):
    path = make_run(tmp_path / "one", finished=False, accuracies=(0.1, 0.2))
    pictures = RunPictures(path)
    assert pictures.make() is pictures.make()
    assert pictures.make()["head"]["version"] == 1
    with open(path / "metrics.csv", "a") as file:
        file.write("2,,2,10,1.0,0.3,0.7\n")
    assert pictures.make()["head"]["version"] == 2


def test_where_there_is_no_run_the_error_says_so(tmp_path):
    with pytest.raises(RunError, match="There is no run in"):
        picture(tmp_path / "nothing")


def test_a_run_is_run_again_by_its_command(tmp_path):
    settings = Settings(rule="afa-cs", workers=4, rounds=6, m=2, seed=5, max_staleness=2)
    simulate(settings, out=tmp_path / "run")
    found = RunDirectory(tmp_path / "run").settings()
    told = settings_again(found)
    assert told == (
        "anarchic simulate --workers 4 --rule afa-cs --m 2 --max-staleness 2 --rounds 6 --seed 5 "
        "--out runs/again"
    )
    other = settings_again({**found, "local_options": {"rho": 0.5}})
    assert "local_options={'rho': 0.5}" in other
    assert "out='runs/again'" in other


def test_an_address_with_a_password_is_not_told():
    rules = replace(RuleSettings(), m=4)
    assert "secret" not in store_again("postgresql://me:secret@host/run", rules)
    assert "--m 4" in store_again("run.db", rules)


def test_strips_of_a_run_with_a_clock_go_from_its_beginning_to_its_end(tmp_path):
    simulate(
        Settings(workers=4, m=2, rounds=6, participation="exponential"),
        out=tmp_path / "run",
    )
    found = picture(tmp_path / "run")
    end = RunDirectory(tmp_path / "run").timetable().push_s[-1]
    assert found["workers"]["axis"] == "elapsed"
    assert found["workers"]["span"] == found["head"]["span"] == pytest.approx((0.0, end))
