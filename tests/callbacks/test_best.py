"""The best model is kept, and a run without progress ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anarchic import Layout, Settings, simulate, wire
from anarchic.callbacks import EarlyStop, KeepBest, RunInfo, VersionInfo
from anarchic.errors import ConfigError, Stop

LAYOUT = Layout.of({"w": ((2,), "F32")})


def told(callback, values, metric="accuracy", **run):
    """Tell it of evaluations; the parameters of version n are n."""
    info = RunInfo("run", {}, LAYOUT, **run)
    callback.begin(info)
    for version, value in enumerate(values):
        read = lambda version=version: np.full(2, version, np.float32)  # noqa: E731
        callback.evaluation(VersionInfo(info, version, {metric: value}, read))


@pytest.mark.parametrize(
    ("metric", "options", "best"),
    [("accuracy", {}, 2), ("val_loss", {}, 0), ("f1", {"metric": "f1"}, 2),
     ("cost", {"metric": "cost", "lower": True}, 0)],
)  # fmt: skip
def test_the_model_of_the_best_evaluation_is_kept(tmp_path, metric, options, best):
    keep = KeepBest(**options)
    told(keep, [0.1, 0.5, 0.9, 0.9, None, 0.3], metric, directory=tmp_path)
    assert (keep.at, keep.params[0]) == (best, best)
    assert keep.value == [0.1, 0.5, 0.9][best]
    layout, params, metadata = wire.load_model(tmp_path / "best.safetensors")
    assert (layout, params[0]) == (LAYOUT, best)
    assert metadata["version"] == str(best)


def test_validation_data_come_first_where_there_are_any():
    keep = KeepBest()
    info = RunInfo("run", {}, LAYOUT)
    keep.begin(info)
    for version, (test, validation) in enumerate([(0.9, 0.1), (0.1, 0.9)]):
        metrics = {"accuracy": test, "val_accuracy": validation}
        keep.evaluation(VersionInfo(info, version, metrics, lambda: np.zeros(2, np.float32)))
    assert keep.at == 1


def test_a_metric_that_there_is_not_is_named():
    with pytest.raises(ConfigError, match="no metric 'f1' in the evaluation, which has accuracy"):
        told(KeepBest(metric="f1"), [0.1])


def test_only_what_is_better_than_before_the_run_went_on_is_kept(tmp_path):
    wire.save_model(tmp_path / "best.safetensors", LAYOUT, np.full(2, 7, np.float32), version="7")
    rows = [{"round": 7, "accuracy": 0.8}]
    keep = KeepBest()
    told(keep, [0.7], directory=tmp_path, metrics=rows)
    assert (keep.at, keep.value, keep.params[0]) == (7, 0.8, 7)
    told(keep, [0.7, 0.9], directory=tmp_path, metrics=rows)
    assert (keep.at, keep.params[0]) == (1, 1)


def test_a_file_of_another_version_is_not_taken_for_the_best(tmp_path, caplog):
    """A run of 9 rounds kept its last version; the longer run does not evaluate that one."""
    wire.save_model(tmp_path / "best.safetensors", LAYOUT, np.full(2, 9, np.float32), version="9")
    rows = [{"round": 7, "accuracy": 0.8}]
    keep = KeepBest()
    told(keep, [0.7], directory=tmp_path, metrics=rows)
    assert (keep.at, keep.value, keep.params) == (7, 0.8, None)
    keep.end({})
    assert "version 7, whose model is not in" in caplog.text
    told(keep, [0.7, 0.9], directory=tmp_path, metrics=rows)
    assert wire.load_model(tmp_path / "best.safetensors")[1][0] == 1


def test_a_run_ends_when_evaluations_are_no_better():
    stop = EarlyStop(patience=2, least=0.01)
    with pytest.raises(Stop, match=r"none of the last 2 evaluations was better than accuracy 0.5"):
        told(stop, [0.1, 0.5, 0.505, 0.4])
    told(stop, [0.1, 0.5, 0.505, 0.6, 0.6])  # better in time
    rows = [{"round": n, "accuracy": 0.5} for n in range(2)]
    with pytest.raises(Stop):  # what was before the run went on counts
        told(stop, [0.5], metrics=rows)
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        EarlyStop(0)


def test_in_a_run(tmp_path):
    keep = KeepBest()
    settings = Settings(rounds=60, batch=16, eval_every=1)
    run = simulate(
        settings, out=tmp_path / "run", callbacks=[keep, EarlyStop(5, metric="accuracy")]
    )
    assert run.summary["stopped_at"] == "stopped"
    assert run.summary["rounds"] < 60
    assert keep.value == run.summary["best_accuracy"]
    assert keep.at == run.summary["rounds"] - 5
    kept = wire.load_model(tmp_path / "run" / "best.safetensors")[1]
    np.testing.assert_array_equal(kept, keep.params)
    short = simulate(replace(settings, rounds=keep.at))
    np.testing.assert_array_equal(short.params, kept)


def test_a_run_that_goes_on_ends_with_the_best_of_the_longer_one(tmp_path):
    """That may be a version of the first part. Callbacks that are named are recorded."""
    settings = Settings(rounds=10, batch=8, eval_every=1, local_lr=1.0, labels_per_worker=2)
    run = tmp_path / "run"
    simulate(settings, out=run, checkpoint_every=5, callbacks=["keep-best"])
    for rounds in (20, 40):
        longer, whole = replace(settings, rounds=rounds), tmp_path / str(rounds)
        simulate(longer, out=run, resume=True, checkpoint_every=5)
        simulate(longer, out=whole, callbacks="keep-best")
        kept = [(each / "best.safetensors").read_bytes() for each in (run, whole)]
        assert kept[0] == kept[1]
    assert simulate(out=run, resume=True).summary["rounds"] == 40
