from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

from anarchic.errors import ConfigError
from anarchic.study.find import PACKAGE
from anarchic.study.flags import HELP, Flags, flag, main, parser, places
from tests.study.make import cell, study


def test_typer_and_argparse_have_the_same_flags(tmp_path):
    from anarchic.cli.app import app

    reproduce = get_command(app).commands["reproduce"]
    typer_has = {o for p in reproduce.params for o in p.opts if o.startswith("--")} - {"--help"}
    made = parser(study(tmp_path))
    argparse_has = {o for a in made._actions for o in a.option_strings} - {"--no-graphs"}
    assert typer_has == argparse_has - {"-h", "--help"} == {flag(f.name) for f in fields(Flags)}
    assert list(HELP) == [f.name for f in fields(Flags)]


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


def test_a_smoke_run_and_an_installed_package_write_into_the_working_directory(tmp_path):
    checkout = study(tmp_path / "table", cell())
    assert places(checkout, Flags()).results == tmp_path / "table" / "results"
    assert places(checkout, Flags(smoke=True, out=tmp_path)).results == tmp_path / "results"
    installed = study(PACKAGE / "experiments" / "table", cell())
    assert places(installed, Flags(out=tmp_path)).pages == tmp_path


def test_a_script_ends_with_one_line_on_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(study(tmp_path / "nowhere", cell()), ["--seeds", "0"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "Error: --seeds must be at least 1, got 0.\n"
