import re

import pytest

from anarchic.report.timetable_summary import summarise
from anarchic.sim.settings import Settings, build
from tests.cli.conftest import contents


def test_statistics_are_shown(anarchic):
    shown = anarchic("timetable", "--rounds", 20, "--max-staleness", 4, "--dynamic-steps")
    assert shown.exit_code == 0, shown.output
    assert "100: 20 rounds of 5" in shown.output
    assert "4 at most" in shown.output
    assert "virtual time" not in shown.output


def test_a_clock_gives_virtual_time_and_a_picture(anarchic, tmp_path):
    pytest.importorskip("matplotlib")
    options = ("--participation", "exponential", "--slow-share", 0.3, "--rounds", 20)
    shown = anarchic("timetable", *options, "--out", tmp_path / "timetable.svg")
    assert shown.exit_code == 0, shown.output
    assert "virtual time" in shown.output
    assert list(map(str, contents(tmp_path))) == ["timetable.svg"]


def test_it_ends_at_a_virtual_time(anarchic):
    shown = anarchic("timetable", "--participation", "exponential", "--until-s", 50)
    assert shown.exit_code == 0, shown.output
    assert re.search(r"virtual time\W+(4[89]|50)", shown.output)


def test_it_is_the_timetable_of_simulate(anarchic, monkeypatch):
    pytest.importorskip("torch")
    seen = []
    monkeypatch.setattr(
        "anarchic.report.timetable_summary.summarise",
        lambda table: seen.append(table) or summarise(table),
    )
    anarchic("timetable", "--rounds", 9, "--max-staleness", 3, "--seed", 3)
    assert seen == [build(Settings(rounds=9, max_staleness=3, seed=3)).timetable]


def test_misuse(refused):
    assert "m=5 of 3" in refused(2, "timetable", "--workers", 3)
