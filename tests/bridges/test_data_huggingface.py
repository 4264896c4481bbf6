"""Hugging Face ``datasets``: in memory, from folders, and by the loader's name."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic import Settings, simulate
from anarchic.data import Dataset, load
from anarchic.errors import DataError
from anarchic.sim.settings import build

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def rows(count=40):
    kind = datasets.ClassLabel(names=["no", "maybe", "yes"])
    features = datasets.Features(
        {
            "a": datasets.Value("float32"),
            "b": datasets.Value("int32"),
            "site": datasets.Value("string"),
            "label": kind,
        }
    )
    columns = {
        "a": [(n % 20 - 9.5) / 10 for n in range(count)],
        "b": list(range(count)),
        "site": [f"s{n % 4}" for n in range(count)],
        "label": [int(n % 20 > 9) for n in range(count)],
    }
    return datasets.Dataset.from_dict(columns, features=features)


def test_columns_and_classes_come_from_the_data_set():
    data = Dataset.of(rows(), owner="site")
    assert (data.x_train.shape, data.classes) == ((32, 2), 3)  # three names, of which two occur
    assert data.roles == ("s0", "s1", "s2", "s3")


def test_the_splits_of_a_dictionary_are_used():
    whole = datasets.DatasetDict(train=rows(40), test=rows(10), validation=rows(6))
    data = Dataset.of(whole, features=["a"], target="label")
    assert (len(data.x_train), len(data.x_test), len(data.x_val)) == (40, 10, 6)


def test_tokens_and_vectors():
    columns = {
        "input_ids": [[n, n + 1] for n in range(10)],
        "labels": [[n + 1, n] for n in range(10)],
    }
    data = Dataset.of(datasets.Dataset.from_dict(columns))
    assert (data.x_train.dtype.kind, data.y_train.shape, data.classes) == ("i", (8, 2), None)


def test_images_have_their_channels_first_and_go_from_0_to_1():
    image = pytest.importorskip("PIL.Image")
    pictures = [image.fromarray(np.full((6, 5, 3), 51 * n, np.uint8)) for n in range(5)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    source = datasets.Dataset.from_dict(
        {"image": pictures, "label": [0, 1, 0, 1, 1]}, features=features
    )
    data = Dataset.of(source, test=source)
    assert (data.x_train.shape, data.x_train.dtype) == ((5, 3, 6, 5), np.float32)
    assert data.x_train[:, 0, 0, 0] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])


def test_a_stream_is_refused_with_what_to_do():
    with pytest.raises(DataError, match=r"without streaming=True"):
        Dataset.of(rows().to_iterable_dataset(), target="label")


def test_a_run_on_a_folder_of_csv_files_learns(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    rows(200).to_csv(folder / "train.csv")
    rows(40).to_csv(folder / "test.csv")
    options = {"path": str(folder), "target": "label", "features": "a", "owner": "site"}
    settings = Settings(data="huggingface", data_options=options, rounds=60, m=2)
    run = simulate(build(settings))
    assert run.metrics[0]["accuracy"] < 0.6
    assert run.accuracy > 0.9


def test_what_save_to_disk_wrote_is_read(tmp_path):
    datasets.DatasetDict(train=rows(20), test=rows(5)).save_to_disk(tmp_path / "saved")
    data = load("huggingface", path=str(tmp_path / "saved"), features="a,b", val=0.1)
    assert (len(data.x_train), len(data.x_test), len(data.x_val)) == (18, 5, 2)
    share = load("huggingface", path=str(tmp_path / "saved"), features="a,b", test=0.5)
    assert (len(share.x_train), len(share.x_test)) == (10, 10)


def test_a_name_that_cannot_be_reached_is_said():
    with pytest.raises(DataError, match="could not be loaded from Hugging Face"):
        load("huggingface", path="nobody/nothing", target="label")
