"""A wheel has what an installed ``anarchic reproduce`` reads, and works in an empty directory."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
pytest.importorskip("hatchling")

from anarchic.study import find
from anarchic.study.results import FILE

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The wheel of this clone, unpacked."""
    from hatchling.builders.wheel import WheelBuilder

    made = tmp_path_factory.mktemp("wheel")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(made), versions=["standard"])
    zipfile.ZipFile(wheel).extractall(made / "site")
    return made / "site"


@pytest.fixture
def installed(site, tmp_path):
    """Run a command of the unpacked wheel in an empty directory, without data files."""

    def run(*words, **environment):
        plain = {name: value for name, value in os.environ.items() if name != "ANARCHIC_DATA"}
        here = {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
        ran = subprocess.run(
            [sys.executable, "-m", "anarchic", *words],
            cwd=tmp_path,
            env={**plain, **here, **environment},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        return ran

    return run


def test_the_wheel_has_code_prose_and_raw_results_of_experiments_only(site):
    files = [path for path in (site / "anarchic" / "experiments").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".py", ".md", ".jsonl"}
    assert {path.name for path in files if path.suffix == ".md"} == {"notes.md"}
    for name in find.names():
        for file in (find.folder() / name).glob("*"):
            if file.suffix in (".py", ".jsonl"):
                packed = site / "anarchic" / "experiments" / name / file.name
                assert packed.read_bytes() == file.read_bytes()
    assert {path.name for path in site.iterdir()} == {"anarchic", "anarchic-0.1.0.dist-info"}


@pytest.mark.slow
def test_the_experiments_are_listed(installed):
    shown = installed("reproduce").stdout
    assert all(name in shown for name in find.names())


@pytest.mark.slow
def test_a_report_of_every_experiment_shows_the_results_of_the_package(installed, tmp_path):
    said = installed("reproduce", "all", "--report").stderr
    assert said.count("came with the package") == len(find.names())
    for name in find.names():
        made, committed = tmp_path / "runs" / "reproduce" / name, find.folder() / name
        assert (made / "README.md").exists()
        assert {p.name for p in made.glob("*.png")} == {p.name for p in committed.glob("*.png")}
    overview = (tmp_path / "runs" / "reproduction.md").read_text(encoding="utf-8")
    assert "](reproduce/figures-2-4/figure-3.png)" in overview


@pytest.mark.slow
def test_a_figure_made_of_a_table_s_runs_finds_them(installed, tmp_path):
    installed("reproduce", "figures-2-4", "--out", "here")
    assert (tmp_path / "here" / "figure-2.png").exists()
    page = (tmp_path / "here" / "README.md").read_text(encoding="utf-8")
    assert "Not run" not in page


@pytest.mark.slow
def test_a_smoke_run_works(installed, tmp_path):
    installed("reproduce", "table-1", "--smoke", "--task", "lr", "--only", "p1-m5-M10-K5-*")
    written = tmp_path / "runs" / "smoke" / "table-1" / FILE
    assert len(written.read_text().splitlines()) == 4


@pytest.mark.slow
def test_a_real_cell_is_run_and_shown_instead_of_the_results_of_the_package(installed, tmp_path):
    cell = ("lower-bound", "--only", "afa-cd-sigma1-share1.0", "--seeds", "1")
    assert "came with the package" not in installed("reproduce", *cell).stderr
    folder = tmp_path / "runs" / "reproduce" / "lower-bound"
    assert len((folder / FILE).read_text().splitlines()) == 1
    assert "1 of 50 cells have results" in (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_real_cell_of_table_1_is_trained(installed, tmp_path):
    data = os.environ.get("ANARCHIC_DATA", "")
    if not (Path(data) / "mnist").is_dir():
        pytest.skip("needs MNIST: set ANARCHIC_DATA to a folder that holds it")
    cell = ("--task", "lr", "--only", "p10-m5-M10-K5-sync-constant", "--seeds", "1")
    said = installed("reproduce", "table-1", *cell, "--out", "here", ANARCHIC_DATA=data).stderr
    assert "p10-m5-M10-K5-sync-constant.seed0: 0.91" in said
    assert len((tmp_path / "here" / FILE).read_text().splitlines()) == 1
