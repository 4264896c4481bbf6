from pathlib import Path

import pytest

from tests.cli.conftest import contents

pytest.importorskip("torch")
pytest.importorskip("matplotlib")


@pytest.fixture
def short(monkeypatch):
    """A race that is over at once."""
    from dataclasses import replace

    from anarchic.demo import race

    monkeypatch.setattr(race, "FEDAVG", replace(race.FEDAVG, rounds=4))


@pytest.mark.usefixtures("short")
@pytest.mark.slow
def test_the_demo_tells_draws_and_may_be_repeated(anarchic, tmp_path):
    out = tmp_path / "demo"
    shown = anarchic("demo", "--out", out)
    assert shown.exit_code == 0, shown.output
    assert "not reached" in shown.output  # four rounds are too few, and it says so
    assert "FedAvg did not reach 90 % accuracy" in shown.output
    assert "sooner" not in shown.output
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    (out / "notes.txt").write_text("mine")
    assert anarchic("demo", "--out", out, "--seed", 1).exit_code == 0
    assert (out / "notes.txt").read_text() == "mine"
    runs = [out / rule for rule in ("fedavg", "afa-cd", "afa-cs")]
    assert anarchic("compare", *runs).exit_code == 0


def test_a_directory_of_someone_else_is_left_alone(refused, tmp_path):
    (tmp_path / "fedavg").mkdir()
    (tmp_path / "fedavg" / "thesis.txt").write_text("mine")
    before = contents(tmp_path)
    assert "not made by the demo" in refused(1, "demo", "--out", tmp_path)
    assert contents(tmp_path) == before


def test_a_place_that_cannot_be_written_is_named(refused, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert "not made by the demo" in refused(1, "demo", "--out", tmp_path / "file")
    line = refused(1, "demo", "--out", tmp_path / "file" / "demo")
    assert "cannot write" in line
    assert "--out" in line
    assert (tmp_path / "file").read_text() == "mine"


def test_a_live_demo_goes_where_it_is_told(anarchic, monkeypatch):
    shown = []

    def live(*told, in_browser):
        shown.append((*told, in_browser))

    monkeypatch.setattr("anarchic.cli.demo._live", live)
    anarchic("demo", "--live")
    anarchic("demo", "--live", "--out", "demo", "--seconds", 9, "--open")
    anarchic("demo", "--live", "--open")
    assert shown == [
        (Path("demo-live"), 30.0, False),
        (Path("demo"), 9.0, True),
        (Path("demo-live"), 60.0, True),
    ]


def test_an_option_of_the_other_demo_is_refused(refused):
    assert "--seed" in refused(2, "demo", "--live", "--seed", 7)
    assert "--seconds" in refused(2, "demo", "--seconds", 9)
    assert "--open" in refused(2, "demo", "--open")
    assert "at least 5, got 4" in refused(2, "demo", "--live", "--seconds", 4)


@pytest.mark.slow
def test_the_whole_demo_takes_seconds(anarchic, tmp_path):
    import time

    start = time.monotonic()
    shown = anarchic("demo", "--out", tmp_path / "demo")
    assert shown.exit_code == 0, shown.output
    assert "times sooner" in shown.output
    assert time.monotonic() - start < 20
