"""Runs: evaluated, recorded, resumed, stopped."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest

from anarchic import (
    AfaCd,
    Compute,
    Experiment,
    Layout,
    LocalWork,
    Settings,
    build,
    make_task,
    simulate,
)
from anarchic.data import iid, load, random_quadratics
from anarchic.errors import ConfigError, Diverged, RunError
from anarchic.participation import Sampler, UniformSteps
from anarchic.sim.record import RunDirectory
from anarchic.train.quadratic import QuadraticTask
from anarchic.wire import load_model

pytest.importorskip("torch")
SMALL = Settings(rounds=30, max_staleness=4, dynamic_steps=True, labels_per_worker=2, batch=16)


def test_a_run_learns_and_its_summary_matches_its_metrics():
    run = simulate(SMALL)
    assert run.accuracy == run.metrics[-1]["accuracy"] > 0.75
    assert run.summary["rounds"] == 30
    assert run.summary["updates"] == 150
    last10 = [row["accuracy"] for row in run.metrics if row["round"] > 20]
    assert len(last10) == 10
    assert run.summary["last10_accuracy"] == pytest.approx(np.mean(last10))


def test_the_summary_has_the_seed_that_was_asked_for():
    """Not the one of its training, which is made of it."""
    experiment = build(replace(SMALL, seed=7, rounds=1))
    assert simulate(experiment).summary["seed"] == 7
    assert simulate(replace(experiment, about={}, seed=8)).summary["seed"] == 8


def test_peak_memory_is_none_where_it_cannot_be_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    assert simulate(replace(SMALL, rounds=1)).summary["peak_rss_mb"] is None


def test_the_same_seed_gives_the_same_bytes_and_another_does_not():
    first, second = simulate(SMALL), simulate(SMALL)
    assert first.params.tobytes() == second.params.tobytes()
    assert simulate(replace(SMALL, seed=1)).params.tobytes() != first.params.tobytes()


def test_loop_and_batched_train_to_the_same_model():
    loop = simulate(replace(SMALL, rounds=5), compute=Compute(backend="loop"))
    np.testing.assert_allclose(simulate(replace(SMALL, rounds=5)).params, loop.params, atol=1e-5)


def test_a_run_directory_holds_everything_in_open_formats(tmp_path):
    run = simulate(SMALL, out=tmp_path / "run", checkpoint_every=10)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {
        "settings.json",
        "timetable.safetensors",
        "metrics.csv",
        "checkpoint.safetensors",
        "model.safetensors",
        "summary.json",
    }
    record = RunDirectory(tmp_path / "run")
    assert record.summary() == json.loads(json.dumps(run.summary))
    assert record.settings()["max_staleness"] == 4
    assert record.timetable().rounds == 30
    assert record.metrics() == run.metrics
    layout, params, metadata = load_model(tmp_path / "run" / "model.safetensors")
    assert params.tobytes() == run.params.tobytes()
    assert layout.names == ("bias", "weight")
    assert metadata["version"] == "30"


class Cut(Exception):
    pass


def cut_at(version):
    def watch(progress):
        if progress.round == version:
            raise Cut

    return watch


KEPT_ADAM = {"local_rule": "clipnorm+decay+adam", "local_options": {"keep_state": True}}


@pytest.mark.parametrize(
    "change", [{}, {"local_rule": "scaffold"}, {"rule": "afa-cs"}, KEPT_ADAM], ids=str
)
def test_a_run_cut_off_resumes_to_the_same_bytes(tmp_path, change):
    settings = replace(SMALL, **change)
    whole = simulate(settings, out=tmp_path / "whole")
    with pytest.raises(Cut):
        simulate(settings, out=tmp_path / "cut", checkpoint_every=7, watch=cut_at(17))
    resumed = simulate(settings, out=tmp_path / "cut", resume=True)
    assert resumed.params.tobytes() == whole.params.tobytes()
    for name in ("model.safetensors", "timetable.safetensors", "settings.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    accuracies = [[row["accuracy"] for row in run.metrics] for run in (resumed, whole)]
    assert accuracies[0] == accuracies[1]
    assert len(RunDirectory(tmp_path / "cut").metrics()) == len(whole.metrics)


def test_a_watcher_that_interrupts_leaves_a_checkpoint(tmp_path):
    def interrupt(progress):
        if progress.round == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(SMALL, out=tmp_path / "cut", watch=interrupt)
    heard = []
    resumed = simulate(
        out=tmp_path / "cut", resume=True, watch=lambda progress: heard.append(progress.round)
    )
    assert heard[0] == 10
    assert resumed.params.tobytes() == simulate(SMALL).params.tobytes()


def test_a_run_is_resumed_with_the_settings_it_was_started_with(tmp_path):
    with pytest.raises(Cut):
        simulate(SMALL, out=tmp_path / "cut", checkpoint_every=5, watch=cut_at(12))
    resumed = simulate(out=tmp_path / "cut", resume=True)
    assert resumed.params.tobytes() == simulate(SMALL).params.tobytes()


def test_a_name_instead_of_an_experiment_is_refused():
    with pytest.raises(ConfigError, match="takes Settings or an Experiment, got 'afa-cd'"):
        simulate("afa-cd")


def test_a_run_without_a_directory_cannot_be_resumed():
    with pytest.raises(ConfigError, match="give it as out"):
        simulate(SMALL, resume=True)


def test_checkpoints_cannot_be_written_every_zero_rounds(tmp_path):
    with pytest.raises(ConfigError, match="checkpoint_every must be at least 1 round, got 0"):
        simulate(SMALL, out=tmp_path / "run", checkpoint_every=0)
    assert not (tmp_path / "run").exists()


def test_a_run_cut_off_before_its_first_checkpoint_starts_again(tmp_path):
    with pytest.raises(Cut):
        simulate(SMALL, out=tmp_path / "cut", watch=cut_at(3))
    resumed = simulate(SMALL, out=tmp_path / "cut", resume=True)
    assert resumed.params.tobytes() == simulate(SMALL).params.tobytes()


def test_resuming_a_finished_run_returns_it(tmp_path):
    run = simulate(SMALL, out=tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    again = simulate(SMALL, out=tmp_path / "run", resume=True)
    assert again.params.tobytes() == run.params.tobytes()
    assert again.summary == run.summary
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_directory_in_use_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="exists and is not empty"):
        simulate(SMALL, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_run_with_other_settings_cannot_be_resumed(tmp_path):
    with pytest.raises(Cut):
        simulate(SMALL, out=tmp_path / "cut", checkpoint_every=5, watch=cut_at(12))
    before = {path: path.read_bytes() for path in (tmp_path / "cut").iterdir()}
    with pytest.raises(RunError, match=r"another run: local_lr is 0.1 there and 0.2 here"):
        simulate(replace(SMALL, local_lr=0.2), out=tmp_path / "cut", resume=True)
    assert {path: path.read_bytes() for path in (tmp_path / "cut").iterdir()} == before


def test_a_run_is_resumed_with_the_compute_record_it_was_started_with(tmp_path):
    compute = Compute(lookahead=3, compiled=False, threads=1)
    with pytest.raises(Cut):
        simulate(SMALL, compute=compute, out=tmp_path / "cut", checkpoint_every=5, watch=cut_at(12))
    assert RunDirectory(tmp_path / "cut").settings()["compute"] == asdict(compute)
    resumed = simulate(SMALL, out=tmp_path / "cut", resume=True)
    assert resumed.params.tobytes() == simulate(SMALL, compute=compute).params.tobytes()


@pytest.mark.parametrize("change", [{"lookahead": 3}, {"backend": "loop"}])
def test_another_backend_or_lookahead_cannot_resume_a_run(tmp_path, change):
    with pytest.raises(Cut):
        simulate(SMALL, out=tmp_path / "cut", checkpoint_every=5, watch=cut_at(12))
    with pytest.raises(RunError, match=r"another run: (lookahead|backend) is .* there and .* here"):
        simulate(SMALL, compute=Compute(**change), out=tmp_path / "cut", resume=True)


def test_an_experiment_has_its_own_compute_choices():
    with pytest.raises(ConfigError, match="compute is for Settings"):
        simulate(build(replace(SMALL, rounds=1)), compute=Compute())


def flat(path):
    """Write a run's settings as format 2 had them: those of Compute among the others."""
    record = json.loads((path / "settings.json").read_text())
    (path / "settings.json").write_text(
        json.dumps({**record, **record.pop("compute"), "format": 2})
    )


def test_a_run_whose_settings_are_of_format_2_is_resumed(tmp_path):
    compute = Compute(lookahead=3)
    with pytest.raises(Cut):
        simulate(SMALL, compute=compute, out=tmp_path / "cut", checkpoint_every=5, watch=cut_at(12))
    flat(tmp_path / "cut")
    with pytest.raises(RunError, match="lookahead is 3 there and 4 here"):
        simulate(SMALL, compute=Compute(lookahead=4), out=tmp_path / "cut", resume=True)
    heard = []
    resumed = simulate(
        out=tmp_path / "cut", resume=True, watch=lambda progress: heard.append(progress.round)
    )
    assert heard[0] == 11
    assert resumed.params.tobytes() == simulate(SMALL, compute=compute).params.tobytes()


def test_other_compiled_loops_cannot_resume_a_run(tmp_path):
    with pytest.raises(Cut):
        simulate(SMALL, out=tmp_path / "cut", checkpoint_every=5, watch=cut_at(12))
    with pytest.raises(RunError, match=r"another run: compiled is None there and True here\."):
        simulate(SMALL, compute=Compute(compiled=True), out=tmp_path / "cut", resume=True)


@pytest.mark.parametrize(
    ("change", "compute"),
    [
        ({"eval_every": 4}, None),
        ({"target_accuracy": 0.999}, None),
        ({"data_dir": "there"}, None),
        ({}, Compute(threads=1)),
    ],
)
def test_a_resumed_run_may_change_evaluation_threads_and_data_dir(tmp_path, change, compute):
    with pytest.raises(Cut):
        simulate(SMALL, out=tmp_path / "cut", checkpoint_every=5, watch=cut_at(12))
    settings = replace(SMALL, **change)
    resumed = simulate(settings, compute=compute, out=tmp_path / "cut", resume=True)
    assert resumed.params.tobytes() == simulate(SMALL).params.tobytes()
    assert RunDirectory(tmp_path / "cut").settings()["eval_every"] == SMALL.eval_every


def test_a_run_resumed_with_a_target_already_reached_ends_at_once(tmp_path):
    seldom = replace(SMALL, eval_every=5)
    with pytest.raises(Cut):
        simulate(seldom, out=tmp_path / "cut", checkpoint_every=7, watch=cut_at(12))
    resumed = simulate(replace(seldom, target_accuracy=0.01), out=tmp_path / "cut", resume=True)
    assert (resumed.summary["rounds"], resumed.metrics[-1]["round"]) == (7, 7)
    assert resumed.summary["stopped_at"] == "target"


def test_a_run_on_other_data_cannot_be_resumed(tmp_path):
    with pytest.raises(Cut):
        simulate(SMALL, out=tmp_path / "cut", checkpoint_every=5, watch=cut_at(12))
    # With one class each, workers have as many samples as with two.
    with pytest.raises(RunError, match="labels_per_worker is 2 there and 1 here"):
        simulate(replace(SMALL, labels_per_worker=1), out=tmp_path / "cut", resume=True)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    simulate(SMALL, out=tmp_path / "other", checkpoint_every=10)
    with pytest.raises(Cut):
        simulate(replace(SMALL, seed=5), out=tmp_path / "cut", watch=cut_at(3))
    stray = (tmp_path / "other" / "checkpoint.safetensors").read_bytes()
    (tmp_path / "cut" / "checkpoint.safetensors").write_bytes(stray)
    with pytest.raises(RunError, match="checkpoint of another run"):
        simulate(replace(SMALL, seed=5), out=tmp_path / "cut", resume=True)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    with pytest.raises(Cut):
        simulate(SMALL, out=tmp_path / "cut", checkpoint_every=5, watch=cut_at(12))
    path = tmp_path / "cut" / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(RunError, match=r"cut short.* remove it to begin again"):
        simulate(SMALL, out=tmp_path / "cut", resume=True)


def test_a_model_of_other_tensors_is_named(tmp_path):
    simulate(replace(SMALL, rounds=1), out=tmp_path / "run")
    with pytest.raises(RunError, match=r"other tensors \(bias, weight\) than this task \(w\): "):
        RunDirectory(tmp_path / "run").model(Layout.of({"w": ((2,), "F32")}))


def test_a_target_ends_the_run():
    run = simulate(replace(SMALL, target_accuracy=0.5, eval_every=1))
    assert run.summary["stopped_at"] == "target"
    assert run.summary["rounds"] < 30
    assert run.accuracy >= 0.5
    assert all(row["accuracy"] < 0.5 for row in run.metrics[:-1])


def test_a_target_is_one_of_validation_samples_where_there_are_any():
    digits = load("digits")
    wrong = replace(digits, x_val=digits.x_test, y_val=(digits.y_test + 5) % 10)
    task = make_task("logistic", wrong, iid(wrong.y_train, 10, 0))
    experiment = replace(build(SMALL), task=task, target_accuracy=0.5, eval_every=1)
    run = simulate(experiment)
    assert run.summary["stopped_at"] == "rounds"
    assert run.metrics[-1]["val_accuracy"] < 0.5 < run.accuracy


def test_divergence_names_the_last_good_checkpoint(tmp_path):
    table = Sampler(4, 2, UniformSteps(1, 4)).timetable(0, 400)
    task = QuadraticTask(random_quadratics(4, 3), start=np.ones(3))
    experiment = Experiment(task, AfaCd(2), table, LocalWork(lr=40.0))
    with pytest.raises(
        Diverged, match=r"version \d+.*worker.*last good checkpoint is .*safetensors"
    ):
        simulate(experiment, out=tmp_path / "run", checkpoint_every=1)
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_loss_that_is_not_finite_names_the_version_and_the_worker():
    class Lost:
        def __init__(self):
            self.inside = QuadraticTask(random_quadratics(4, 3))

        def __getattr__(self, name):
            return getattr(self.inside, name)

        def evaluate(self, params):
            return {"loss": 1.0 if not params.any() else float("nan")}

        def evaluate_all(self, params):
            return [self.evaluate(vector) for vector in params]

    table = Sampler(4, 2, UniformSteps(1, 4)).timetable(0, 4)
    with pytest.raises(Diverged, match=r"Version 1, made by the update of worker '\d', has .*nan"):
        simulate(Experiment(Lost(), AfaCd(2), table, LocalWork(lr=0.1)))


def test_virtual_time_is_recorded_where_there_is_a_clock():
    assert simulate(SMALL).summary["virtual_s"] is None
    run = simulate(replace(SMALL, participation="exponential", max_staleness=0))
    times = [row["virtual_s"] for row in run.metrics]
    assert times[0] == 0
    assert times == sorted(times)
    assert times[-1] == run.summary["virtual_s"] > 1
