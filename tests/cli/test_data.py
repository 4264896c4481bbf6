import os
from pathlib import Path

import pytest


@pytest.fixture
def nothing_here(monkeypatch, tmp_path):
    monkeypatch.delenv("ANARCHIC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("anarchic.data.files._SYSTEM_FOLDERS", {})
    return tmp_path


def test_the_list_says_what_is_missing_and_fetches_nothing(anarchic, nothing_here):
    shown = anarchic("data", "list")
    assert shown.exit_code == 0
    known = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "shakespeare", "synthetic")
    for name in (*known, "femnist", "leaf-shakespeare", "csv", "huggingface"):
        assert name in shown.output
    assert shown.output.count("not here") == 7
    assert list(nothing_here.iterdir()) == []


def test_real_data_is_found(anarchic):
    source = os.environ.get("ANARCHIC_DATA")
    if not source or not Path(source, "mnist").is_dir():
        pytest.skip("needs MNIST: set ANARCHIC_DATA to a folder that holds it")
    assert str(Path(source, "mnist")) in anarchic("data", "list").output


def test_a_damaged_file_is_found_by_check(anarchic, nothing_here):
    place = nothing_here / "data" / "mnist"
    place.mkdir(parents=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (place / f"{name}-ubyte").write_bytes(b"\0\0\x08")
    folder = ("--data-dir", nothing_here / "data")
    assert str(place) in anarchic("data", "list", *folder).output
    shown = anarchic("data", "list", "--check", *folder)
    assert shown.exit_code == 1
    assert "train-images-idx3-ubyte is damaged" in shown.stderr
    assert "1,437" in shown.stdout


def test_a_partition_is_counted_and_drawn(anarchic, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "partition.png"
    shown = anarchic("data", "partition", "--labels-per-worker", 2, "--out", picture)
    assert shown.exit_code == 0, shown.output
    assert "1,380 of 1,437" in shown.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_partition_of_data_with_options(anarchic):
    shown = anarchic("data", "partition", "--data", "synthetic", "--data-option", "workers=4")
    assert shown.exit_code == 0, shown.output
    assert "synthetic(1, 1)" in shown.output
    assert "workers            │ 4" in shown.output


def test_an_impossible_partition_is_refused(refused):
    line = refused(2, "data", "partition", "--workers", 7, "--labels-per-worker", 3)
    assert "cannot hold each class equally often" in line


@pytest.fixture
def table(tmp_path):
    rows = [f"{n % 7},{n % 5},{'abc'[n % 3]},{'high' if n % 7 > 3 else 'low'}" for n in range(210)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["dose,day,clinic,effect", *rows]))
    return f"path={path}"


def test_a_csv_file_is_trained_on_by_its_owners(anarchic, table, tmp_path):
    options = [f"--data-option={each}" for each in (table, "target=effect", "owner=clinic")]
    shown = anarchic("data", "partition", "--data", "csv", *options)
    assert "table.csv, 2 classes" in shown.output
    assert "3" in shown.output
    out = tmp_path / "run"
    run = ("--rounds", "40", "--m", "2", "--out", out, "--data-option=val=0.1")
    assert anarchic("simulate", "--data", "csv", *options, *run).exit_code == 0
    header, first, *_, last = (out / "metrics.csv").read_text().splitlines()
    found = [dict(zip(header.split(","), row.split(","), strict=True)) for row in (first, last)]
    assert float(found[0]["val_accuracy"]) < 0.75 < 0.9 < float(found[1]["val_accuracy"])


def test_targets_without_classes_are_shown_and_refused_where_classes_are_needed(anarchic, table):
    options = [f"--data-option={each}" for each in (table, "target=dose", "features=day")]
    whole = anarchic("data", "partition", "--data", "csv", *options)
    assert "7 classes" in whole.output  # whole numbers are labels
    halves = [*options, "--data-option=target=day,dose"]
    shown = anarchic("data", "partition", "--data", "csv", *halves[:1], *halves[2:])
    assert "classes" not in shown.output
    refused = anarchic("simulate", "--data", "csv", *halves[:1], *halves[2:])
    assert refused.exit_code == 2
    assert "needs classes" in refused.stderr
