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


LOG = """worker,pull_s,push_s,local_steps
0,0,2,5
0,3,5,5
0,6,8,5
1,0,3,5
1,3,6,5
2,0,7,5
2,9,11,5
"""


def test_refused_retried_skipped_stopped_and_lost_visits_are_counted(anarchic):
    clock = ("timetable", "--participation", "exponential", "--rounds", 60, "--m", 4)
    for options, told in (
        (("--refuse-staleness", 1, "--retries", 2), ("refused updates", "of these retried")),
        (("--refuse-staleness", 0, "--lost-share", 0.2), ("refused updates", "lost visits")),
        (("--skip-unchanged",), ("skipped visits",)),
        (("--server-picks", "cohort", "--max-concurrent", 9), ("stopped visits", "in vain")),
        (("--step-every-s", 0.4), ("60 rounds of at most 4",)),
        (("--join", "0.5@5", "--leave", "0.2@9"), ("60 rounds of 4",)),
    ):
        shown = anarchic(*clock, *options)
        assert shown.exit_code == 0, shown.output
        for words in told:
            assert words in shown.output


def test_recorded_visits_are_shown_with_and_without_a_server_that_refuses(anarchic, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text(LOG)
    plain = anarchic("timetable", "--trace", log, "--m", 2)
    assert "2 at most" in plain.output
    refusing = anarchic("timetable", "--trace", log, "--m", 2, "--refuse-staleness", 1)
    assert re.search(r"refused updates +│ 1, 14.3 % of the updates sent", refusing.output)
    run = ("simulate", "--trace", log, "--m", 2, "--refuse-staleness", 1, "--out", tmp_path / "run")
    shown = anarchic(*run)
    assert shown.exit_code == 0, shown.output
    assert re.search(r"refused updates +│ 1, 14.3 % of the updates sent", shown.output)
    again = anarchic("timetable", "--trace", tmp_path / "run")
    assert "6: 3 rounds of 2" in again.output
    assert "1, 14.3 % of the updates sent" in again.output  # 1 of 7


def test_a_wrong_line_of_a_trace_is_named(refused, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text(LOG.replace("0,3,5,5", "0,3,x,5"))
    assert "line 3, column push_s: 'x' is not a time" in refused(1, "timetable", "--trace", log)
    assert "There is no trace absent" in refused(1, "timetable", "--trace", "absent")
