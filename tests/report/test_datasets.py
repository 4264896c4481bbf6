import sys

import numpy as np
import pytest

from anarchic.data import dirichlet
from anarchic.errors import ConfigError
from anarchic.report.datasets import (
    DatasetStatus,
    list_datasets,
    partition_table,
    plot_partition,
)

Y = np.array([0, 0, 1, 2, 2, 2])
PARTS = [np.array([0, 2]), np.array([3, 4, 5]), np.array([], np.int64)]


def test_the_table_counts_by_worker_and_class():
    assert partition_table(PARTS, Y, 4).tolist() == [[1, 1, 0, 0], [0, 0, 3, 0], [0, 0, 0, 0]]


def test_labels_beyond_the_classes_are_refused():
    with pytest.raises(ConfigError, match="labels go up to 2, got classes=2"):
        partition_table(PARTS, Y, 2)


@pytest.mark.parametrize(
    ("workers", "classes"), [(10, 10), pytest.param(143, 80, marks=pytest.mark.slow), (20, 20)]
)
def test_a_picture_is_drawn(tmp_path, workers, classes):
    pytest.importorskip("matplotlib")
    y = np.arange(4_000) % classes
    path = plot_partition(dirichlet(y, workers, 0.5, 0), y, classes, tmp_path / "who.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_no_matplotlib_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'anarchic\[plots\]'"):
        plot_partition(PARTS, Y, 3, tmp_path / "who.png")


def test_data_sets_are_where_their_files_are(tmp_path, monkeypatch):
    monkeypatch.delenv("ANARCHIC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "shakespeare"
    place.mkdir()
    (place / "pg100.txt.gz").write_bytes(b"")
    found = {status.name: status for status in list_datasets(tmp_path)}
    assert found["shakespeare"] == DatasetStatus("shakespeare", str(place))
    assert found["mnist"] == DatasetStatus("mnist", "not here; fetched on first use")
    assert found["digits"] == DatasetStatus("digits", "with the package")


def test_a_check_counts_samples_and_says_what_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setenv("ANARCHIC_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare" / "pg100.txt").write_text("To be")
    found = {status.name: status for status in list_datasets(check=True)}
    assert (found["digits"].train, found["digits"].test) == (1_437, 360)
    assert found["shakespeare"].train is None
    assert "pg100.txt" in found["shakespeare"].problem
