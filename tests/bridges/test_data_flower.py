"""Partitions of flwr-datasets, by its public methods."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic.data import Dataset, by_partitioner, by_role, load
from anarchic.errors import ConfigError, DataError

datasets = pytest.importorskip("datasets")
pytest.importorskip("flwr_datasets")
from flwr_datasets import FederatedDataset
from flwr_datasets.partitioner import (
    DirichletPartitioner,
    IidPartitioner,
    NaturalIdPartitioner,
    PathologicalPartitioner,
)


def rows(count=60):
    columns = {
        "a": [float(n) for n in range(count)],
        "site": [f"s{n % 4}" for n in range(count)],
        "label": [n % 3 for n in range(count)],
    }
    return datasets.Dataset.from_dict(columns)


@pytest.mark.parametrize(
    ("partitioner", "workers"),
    [
        (IidPartitioner(num_partitions=5), 5),
        (DirichletPartitioner(num_partitions=5, partition_by="label", alpha=1.0), 5),
        (PathologicalPartitioner(10, "label", 2, "first-deterministic"), 10),
    ],
)
def test_any_data_set_is_dealt_by_a_partitioner(partitioner, workers):
    data = load("digits")
    parts = by_partitioner(data, partitioner)
    assert len(parts) == workers
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together) == len(data.y_train)
    again = by_partitioner(data, partitioner)
    assert all(np.array_equal(*pair) for pair in zip(parts, again, strict=True))
    if isinstance(partitioner, PathologicalPartitioner):
        assert {len(np.unique(data.y_train[part])) for part in parts} == {2}


def test_roles_are_a_column_too():
    data = load("synthetic", workers=4)
    parts = by_partitioner(data, NaturalIdPartitioner(partition_by="role"))
    assert [part.tolist() for part in parts] == [part.tolist() for part in by_role(data)]


def test_a_partitioner_with_rows_of_its_own_is_a_source():
    partitioner = NaturalIdPartitioner(partition_by="site")
    partitioner.dataset = rows()
    data = Dataset.of(partitioner, features="a", target="label", test=rows(9))
    assert (len(data.roles), len(data.y_train), data.classes) == (4, 60, 3)
    for number, part in enumerate(by_role(data)):
        assert {int(a) % 4 for a in data.x_train[part, 0]} == {number}
    with pytest.raises(ConfigError, match=r"rows of its own already: use Dataset.of"):
        by_partitioner(data, partitioner)


def test_a_partitioner_without_rows_is_refused():
    with pytest.raises(DataError, match=r"no rows yet: set partitioner.dataset"):
        Dataset.of(IidPartitioner(num_partitions=2), target="label")


def test_a_federated_data_set_brings_its_splits(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "mine"
    folder.mkdir()
    rows().to_csv(folder / "train.csv")
    rows(9).to_csv(folder / "test.csv")
    whole = FederatedDataset(dataset=str(folder), partitioners={"train": 6})
    data = Dataset.of(whole, features="a", target="label")
    assert (len(by_role(data)), len(data.y_train), len(data.y_test)) == (6, 60, 9)
