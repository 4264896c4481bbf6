import os

import pytest

from anarchic.data import load
from anarchic.report.shelf import SAMPLES, dealt, shelf, where
from anarchic.sim.settings import Settings


@pytest.mark.parametrize("name", ["digits", "synthetic", "mnist", "shakespeare"])
def test_the_listed_sizes_are_those_that_are_loaded(name):
    needs = name in ("mnist", "shakespeare")
    source = os.environ.get("ANARCHIC_DATA")
    if needs and not (source and os.path.isdir(f"{source}/{name}")):
        pytest.skip(f"needs {name}: set ANARCHIC_DATA to a folder that holds it")
    data = load(name)
    assert SAMPLES[name] == (len(data.y_train), len(data.y_test))


def test_a_data_set_is_there_when_all_its_files_are(tmp_path, monkeypatch):
    monkeypatch.delenv("ANARCHIC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "mnist"
    place.mkdir()
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3"):
        (place / f"{name}-ubyte.gz").write_bytes(b"")
    assert where("mnist", tmp_path) is None
    (place / "t10k-labels-idx1-ubyte").write_bytes(b"")
    assert where("mnist", tmp_path) == str(place)
    [mnist] = [kept for kept in shelf(tmp_path) if kept.name == "mnist"]
    assert (mnist.where, mnist.train) == (str(place), 60_000)


def test_what_is_dealt_is_what_a_run_would_have():
    data, parts = dealt(Settings(workers=5, labels_per_worker=4, seed=2))
    assert (data.name, len(parts)) == ("digits", 5)
    assert all(len(set(data.y_train[part])) == 4 for part in parts)
    pytest.importorskip("torch")
    from anarchic.sim.settings import build

    held = build(Settings(workers=5, m=2, labels_per_worker=4, seed=2)).task.samples
    assert [len(part) for part in parts] == held.tolist()


def test_roles_are_workers_by_nature():
    data, parts = dealt(Settings(data="synthetic", workers=7))
    assert len(data.roles) == len(parts) == 7
