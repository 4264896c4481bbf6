"""What is refused, and with which sentence."""

from __future__ import annotations

import tempfile
from contextlib import chdir
from pathlib import Path

import torch

from anarchic import TorchTask
from anarchic.data import Dataset, iid
from anarchic.errors import AnarchicError
from anarchic.worker.initial import InitialModel, write_initial_model
from tests.train.kinds import KINDS, WORKERS, cnn, digits


def refusals() -> dict[str, dict[str, str]]:
    """By kind and world, the sentence."""
    simulated = said(lambda: task(cnn(torch.nn.BatchNorm2d)))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "model.safetensors"
        source = "tests.kinds.worlds:CNN with BatchNorm, average"
        first = said(lambda: write_initial_model(out, InitialModel(source=source)))
        with chdir(folder):
            Path("pytorch_model.bin").write_bytes(b"x")
            pickled = said(
                lambda: write_initial_model(out, InitialModel(source="pytorch_model.bin"))
            )
    stream = type("Stream", (torch.utils.data.IterableDataset,), {"__iter__": lambda self: None})()
    return {
        "CNN with BatchNorm, no policy": dict.fromkeys(("loop", "batched"), simulated)
        | {"live": first},
        "pytorch_model.bin as first model": {"live": pickled},
        "IterableDataset": dict.fromkeys(("loop", "batched"), said(lambda: Dataset.of(stream))),
        "Wrong input size": dict.fromkeys(
            ("loop", "batched"), said(lambda: task(torch.nn.Linear(7, 10)))
        ),
        "Float targets without a loss for them": dict.fromkeys(
            ("loop", "batched"), said(lambda: task(KINDS["Regression"].make(), regression()))
        ),
        "XGBoost": {"live": xgboost()},
    }


def task(module: torch.nn.Module, data: Dataset | None = None) -> TorchTask:
    data = digits() if data is None else data
    return TorchTask(module, data, iid(data.y_train, WORKERS, 0))


def regression() -> Dataset:
    return KINDS["Regression"].data()


def xgboost() -> str:
    """The bridge looks at the name of the module that a class comes from: no library needed."""
    from anarchic.bridges.xgboost import visit

    booster = type("XGBClassifier", (), {"__module__": "xgboost.sklearn"})()
    return said(lambda: visit(None, booster))


def said(call) -> str:
    try:
        call()
    except AnarchicError as error:
        return str(error)
    raise AssertionError("it was not refused")
