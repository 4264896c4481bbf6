from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

from anarchic.errors import ConfigError
from anarchic.study.find import PACKAGE
from anarchic.study.flags import FLAGS, Flags, flag, main, parser, paths
from anarchic.study.results import FILE
from tests.study.make import cell, study


def test_typer_and_argparse_have_the_same_flags(tmp_path):
    from anarchic.cli.app import app

    reproduce = get_command(app).commands["reproduce"]
    typer_has = {o for p in reproduce.params for o in p.opts if o.startswith("--")}
    typer_has -= {"--help", "--quiet"}  # of the command alone: run.py prints
    made = parser(study(tmp_path))
    usage = set(re.findall(r"(?<![\w-])--[a-z-]+", made.format_usage()))
    assert typer_has == usage - {"--no-graphs"} == {flag(f.name) for f in fields(Flags)}
    assert list(FLAGS) == [f.name for f in fields(Flags)]


def test_words_become_flags(tmp_path):
    words = ["--task", "lr", "--seeds", "3", "--smoke", "--out", "there", "--stop-after", "2.5"]
    given = Flags(**vars(parser(study(tmp_path)).parse_args(words)))
    assert given == Flags(task="lr", seeds=3, smoke=True, out=Path("there"), stop_after=2.5)


def test_wrong_numbers_are_refused():
    for wrong in ({"seeds": 0}, {"stop_after": 0.0}, {"precision": "fp8"}, {"at_once": 0}):
        with pytest.raises(ConfigError):
            Flags(**wrong)
    with pytest.raises(ConfigError, match="leave --report out"):
        Flags(smoke=True, report=True)


def test_a_clone_writes_to_the_experiment_and_a_smoke_run_to_out(tmp_path):
    clone = study(tmp_path / "table", cell())
    assert paths(clone, Flags()).results == tmp_path / "table" / FILE
    assert paths(clone, Flags()).pages == tmp_path / "table"
    assert paths(clone, Flags(smoke=True, out=tmp_path)).results == tmp_path / FILE


def test_an_installed_package_writes_to_out_and_shows_its_own_results_until_then(tmp_path):
    installed = study(PACKAGE / "experiments" / "table", cell())
    where = paths(installed, Flags(out=tmp_path))
    assert (where.pages, where.results) == (tmp_path, tmp_path / FILE)
    assert where.shown == PACKAGE / "experiments" / "table" / FILE
    where.results.write_text("")
    assert where.shown == tmp_path / FILE


def test_an_installed_figure_shows_the_runs_of_its_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    figure = study(PACKAGE / "experiments" / "figure", cell(), results_of="table")
    where = paths(figure, Flags())
    assert where.pages == Path("runs/reproduce/figure")
    assert where.results == Path("runs/reproduce/table") / FILE
    assert where.shown == PACKAGE / "experiments" / "table" / FILE


def test_a_script_ends_with_one_line_on_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(study(tmp_path / "nowhere", cell()), ["--seeds", "0"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "Error: --seeds must be at least 1, got 0.\n"
