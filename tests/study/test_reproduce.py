from __future__ import annotations

import time
from dataclasses import replace

import pytest

import anarchic.sim.settings as sim_settings
from anarchic.errors import ConfigError
from anarchic.sim.settings import Settings, build
from anarchic.study import Cell, Flags
from anarchic.study.flags import Paths
from anarchic.study.reproduce import jobs, run
from anarchic.study.results import FILE, add_results, read_results
from tests.study.make import cell, result, study


@pytest.fixture
def where(tmp_path):
    return Paths(tmp_path / "work", tmp_path / FILE, tmp_path / "pages")


def results(where):
    """By cell and seed."""
    found = read_results(where.results).by_key
    return {f"{name}.{seed}": result for (_, name, seed), result in found.items()}


def names(where):
    return list(results(where))


def test_every_cell_is_run_with_every_seed(tmp_path, where):
    assert run(study(tmp_path, cell("a"), cell("b", base=0.7)), Flags(seeds=2), where)
    assert names(where) == ["a.0", "a.1", "b.0", "b.1"]
    assert results(where)["b.1"].numbers == {"value": 0.72}


def test_flags_choose_task_and_cells(tmp_path, where):
    both = study(tmp_path, cell("p1-x"), cell("p2-x"), cell("p1-y", task="u"))
    run(both, Flags(task="t", only="p1-*"), where)
    assert names(where) == ["p1-x.0"]
    with pytest.raises(ConfigError, match="it has t, u"):
        run(both, Flags(task="v"), where)
    with pytest.raises(ConfigError, match="No cell"):
        run(both, Flags(only="p3*"), where)


def test_data_are_read_once_for_all_batches(tmp_path, where, monkeypatch):
    read, load = [], sim_settings.load
    monkeypatch.setattr(
        sim_settings, "load", lambda name, *at, **how: read.append(name) or load(name, *at, **how)
    )
    settings = Settings(rounds=2)
    trained = study(tmp_path, *(Cell(name=n, task="t", settings=settings) for n in "ab"))
    assert run(trained, Flags(seeds=2, at_once=1), where)
    assert (len(names(where)), read) == (4, ["digits"])


def test_resume_keeps_results_unless_the_settings_changed(tmp_path, where):
    run(study(tmp_path, cell("a"), cell("b")), Flags(), where)
    text = where.results.read_text()
    where.results.write_text(text.replace('"value": 0.5', '"value": 0.1'))  # as if old
    run(study(tmp_path, cell("a"), cell("b", base=0.9)), Flags(resume=True), where)
    values = {name: result.numbers["value"] for name, result in results(where).items()}
    assert values == {"a.0": 0.1, "b.0": 0.9}
    run(study(tmp_path, cell("a")), Flags(), where)
    assert results(where)["a.0"].numbers["value"] == 0.5


def test_a_cell_is_not_computed_in_two_precisions(tmp_path, where):
    made = study(tmp_path, cell("a"), cell("b"), precisions={"t": "bf16"})
    add_results(where.results, [result(cell("a"), 0, precision="bf16", value=0.1)])
    assert run(made, Flags(resume=True), where)  # b alone: a is there
    with pytest.raises(ConfigError, match=r"computed in bf16.* --precision bf16 and --device cuda"):
        run(made, Flags(resume=True, seeds=2), where)
    assert names(where) == ["a.0", "b.0"]
    assert run(made, Flags(only="a", seeds=2), where)  # all of them anew
    found = results(where)
    assert [found[name].precision for name in ("a.0", "a.1")] == ["ieee", "ieee"]


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
    found = results(where)["wild.0"]
    assert found.stopped_at == "diverged"
    assert found.numbers["rounds"] == 0  # the last evaluation
    assert 0 < found.numbers["diverged_at"] < 30


def test_after_the_deadline_no_further_batch_is_run(tmp_path, where):
    def slow(job):
        time.sleep(0.2)
        return {"value": 1.0}

    cells = [replace(cell(name), measure=slow) for name in "ab"]
    assert not run(study(tmp_path, *cells), Flags(stop_after=0.1), where)
    assert names(where) == ["a.0"]


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
    found = results(where)
    assert found["by-hand.0"].numbers == {"updates": 10}
    usual = found["by-settings.0"]
    assert usual.numbers["rounds"] == 2
    assert usual.stopped_at == "rounds"
    assert usual.curve["round"] == [0, 1, 2]
    assert usual.hardware["name"]
    assert (where.work / "lr" / "by-settings.seed0" / "summary.json").exists()


def test_a_batch_without_a_finished_run_writes_no_results(tmp_path, where):
    pytest.importorskip("torch")
    long = Cell(name="long", task="t", settings=Settings(rounds=50_000, batch=4))
    assert not run(study(tmp_path, long), Flags(stop_after=0.2), where)
    assert not where.results.exists()


def test_a_task_may_begin_with_another_seed(tmp_path):
    made = study(tmp_path, cell(), seeds={"t": 2}, first_seeds={"t": 100})
    where = Paths(tmp_path, tmp_path / FILE, tmp_path)
    run(made, Flags(), where)
    assert [seed for _, _, seed in read_results(where.results).by_key] == [100, 101]
    assert list(made.seeds_of("t", 1)) == [100]


def test_a_smoke_run_may_have_some_of_the_cells(tmp_path):
    made = study(tmp_path, cell("a"), cell("b"), in_smoke=lambda each: each.name == "b")
    assert [each.name for each in made.smoke().cells] == ["b"]
    assert len(study(tmp_path, cell("a"), cell("b")).smoke().cells) == 2
