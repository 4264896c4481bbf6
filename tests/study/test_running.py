from __future__ import annotations

import time
from dataclasses import replace

import pytest

from anarchic.errors import ConfigError
from anarchic.sim.settings import Settings, build
from anarchic.study import Cell, Flags, Result
from anarchic.study.flags import Places
from anarchic.study.running import jobs, run
from tests.study.make import cell, result, study


@pytest.fixture
def where(tmp_path):
    return Places(tmp_path / "work", tmp_path / "results", tmp_path / "pages")


def names(where):
    return sorted(path.name for path in where.results.rglob("*.json"))


def test_every_cell_is_run_with_every_seed(tmp_path, where):
    assert run(study(tmp_path, cell("a"), cell("b", base=0.7)), Flags(seeds=2), where)
    assert names(where) == ["a.seed0.json", "a.seed1.json", "b.seed0.json", "b.seed1.json"]
    assert Result.read(where.results / "t" / "b.seed1.json").numbers == {"value": 0.72}


def test_flags_choose_task_and_cells(tmp_path, where):
    both = study(tmp_path, cell("p1-x"), cell("p2-x"), cell("p1-y", task="u"))
    run(both, Flags(task="t", only="p1-*"), where)
    assert names(where) == ["p1-x.seed0.json"]
    with pytest.raises(ConfigError, match="it has t, u"):
        run(both, Flags(task="v"), where)
    with pytest.raises(ConfigError, match="No cell"):
        run(both, Flags(only="p3*"), where)


def test_resume_keeps_results_unless_the_settings_changed(tmp_path, where):
    run(study(tmp_path, cell("a"), cell("b")), Flags(), where)
    for path in where.results.rglob("*.json"):
        path.write_text(path.read_text().replace('"value": 0.5', '"value": 0.1'))  # as if old
    run(study(tmp_path, cell("a"), cell("b", base=0.9)), Flags(resume=True), where)
    values = {p.name[0]: Result.read(p).numbers["value"] for p in where.results.rglob("*.json")}
    assert values == {"a": 0.1, "b": 0.9}
    run(study(tmp_path, cell("a")), Flags(), where)
    assert Result.read(where.results / "t" / "a.seed0.json").numbers["value"] == 0.5


def test_a_cell_is_not_computed_in_two_precisions(tmp_path, where):
    made = study(tmp_path, cell("a"), cell("b"), precisions={"t": "bf16"})
    result(cell("a"), 0, precision="bf16", value=0.1).write(where.results)
    assert run(made, Flags(resume=True), where)  # b alone: a is there
    with pytest.raises(ConfigError, match=r"computed in bf16.* --precision bf16 and --device cuda"):
        run(made, Flags(resume=True, seeds=2), where)
    assert names(where) == ["a.seed0.json", "b.seed0.json"]
    assert run(made, Flags(only="a", seeds=2), where)  # all of them anew
    found = [Result.read(path).precision for path in where.results.rglob("a*.json")]
    assert found == ["ieee", "ieee"]


def test_a_precision_is_the_task_s_own_on_a_gpu(tmp_path, where):
    made = study(tmp_path, cell("a"), cell("b", task="u"), precisions={"t": "bf16"})

    def precisions(**flags):
        return [job.precision for job in jobs(made, Flags(**flags), where)]

    assert precisions() == ["ieee", "ieee"]
    assert precisions(device="cuda") == ["bf16", "ieee"]
    assert precisions(device="cuda", precision="tf32") == ["tf32", "tf32"]


def test_a_diverged_run_says_at_which_version(tmp_path, where):
    pytest.importorskip("torch")
    settings = Settings(model="mlp", rounds=30, eval_every=30, batch=4, local_steps=1, local_lr=1e5)
    wild = Cell(name="wild", task="t", settings=settings)
    assert run(study(tmp_path, wild), Flags(), where)
    found = Result.read(where.results / "t" / "wild.seed0.json")
    assert found.stopped_at == "diverged"
    assert found.numbers["rounds"] == 0  # the last evaluation
    assert 0 < found.numbers["diverged_at"] < 30


def test_when_the_time_is_over_the_rest_is_left(tmp_path, where):
    def slow(job):
        time.sleep(0.2)
        return {"value": 1.0}

    cells = [replace(cell(name), measure=slow) for name in "ab"]
    assert not run(study(tmp_path, *cells), Flags(stop_after=0.1), where)
    assert names(where) == ["a.seed0.json"]


def test_trained_cells_by_settings_and_by_experiment(tmp_path, where):
    pytest.importorskip("torch")
    settings = Settings(rounds=2, batch=4)
    cells = [
        Cell(name="by-settings", task="lr", settings=settings),
        Cell(
            name="by-hand",
            task="lr",
            settings={"rounds": 2},
            train=lambda job: build(settings),
            read=lambda run: {"updates": run.summary["updates"]},
            value="updates",
        ),
    ]
    assert run(study(tmp_path, *cells), Flags(), where)
    found = {p.name: Result.read(p) for p in where.results.rglob("*.json")}
    assert found["by-hand.seed0.json"].numbers == {"updates": 10}
    usual = found["by-settings.seed0.json"]
    assert usual.numbers["rounds"] == 2
    assert usual.stopped_at == "rounds"
    assert usual.curve["round"] == [0, 1, 2]
    assert usual.hardware["name"]
    assert (where.work / "lr" / "by-settings.seed0" / "summary.json").exists()
