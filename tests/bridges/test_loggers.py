"""Loggers write what happened, with the real libraries and without a network."""

from __future__ import annotations

import json
import struct

import pytest

from anarchic import Settings, simulate
from anarchic.callbacks import MLflow, TensorBoard, WandB
from tests.waiting import until

SMALL = Settings(rounds=6, batch=8, eval_every=3)


def expected(run, name="accuracy"):
    return [(row["round"], pytest.approx(row[name], rel=1e-6)) for row in run.metrics]


def test_tensorboard_reads_what_was_logged(tmp_path):
    pytest.importorskip("tensorboard")
    pytest.importorskip("torch")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = simulate(SMALL, out=tmp_path / "run", callbacks=[TensorBoard()])
    found = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    assert [(each.step, each.value) for each in found.Scalars("accuracy")] == expected(run)
    assert [(each.step, each.value) for each in found.Scalars("loss")] == expected(run, "loss")
    told = found.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
    assert '"batch": 8' in told


def test_mlflow_keeps_metrics_and_settings(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "MLFLOW_ALLOW_FILE_STORE", "true"
    )  # a database would need its server's parts
    mlflow = pytest.importorskip("mlflow")
    uri = (tmp_path / "mlruns").as_uri()
    logger = MLflow("digits", run_name="first", tracking_uri=uri)
    run = simulate(SMALL, callbacks=[logger])
    client = mlflow.MlflowClient(tracking_uri=uri)
    history = client.get_metric_history(logger.run_id, "accuracy")
    assert [(each.step, each.value) for each in history] == expected(run)
    kept = client.get_run(logger.run_id)
    assert (kept.data.params["batch"], kept.data.params["compute.backend"]) == ("8", "batched")
    assert (kept.info.run_name, kept.info.status) == ("first", "FINISHED")
    again = MLflow("digits", tracking_uri=uri)  # the experiment exists by now
    simulate(SMALL, callbacks=[again])
    assert client.get_run(again.run_id).info.experiment_id == kept.info.experiment_id


def records(data):
    """The records in a file of wandb: a log in blocks of 32 KiB, as LevelDB writes it."""
    from wandb.proto.wandb_internal_pb2 import Record

    place, whole = 7, b""  # after the file's own header
    while place + 7 <= len(data):
        if (1 << 15) - place % (1 << 15) < 7:  # what is too short for a header is filled with zeros
            place += (1 << 15) - place % (1 << 15)
        _, length, kind = struct.unpack_from("<IHB", data, place)
        if place + 7 + length > len(data):  # it is being written
            return
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the end of one
            yield Record.FromString(whole)
            whole = b""


@pytest.mark.slow
def test_wandb_writes_a_run_that_can_be_sent_later(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = simulate(SMALL, callbacks=[WandB("digits", mode="offline", dir=str(tmp_path))])
    (path,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    # Its service closes the file after ``finish`` has returned.
    until(lambda: any(record.HasField("exit") for record in records(path.read_bytes())), 30.0)
    rows, config = [], {}
    for record in records(path.read_bytes()):
        items = {i.key or i.nested_key[0]: i.value_json for i in record.history.item}
        if "accuracy" in items:
            rows.append((json.loads(items["_step"]), json.loads(items["accuracy"])))
        config |= {item.key: item.value_json for item in record.run.config.update}
    assert rows == expected(run)
    assert config["batch"] == "8"
