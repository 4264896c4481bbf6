"""Options of a command from the fields of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from anarchic.cli.records import Option, chosen, takes


@dataclass(frozen=True, kw_only=True)
class Trip:
    to: str
    days: int = 7
    map: Path | None = None
    fast: bool = False
    guided: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Luggage:
    bags: float = 1.5
    contents: Mapping[str, Any] = field(default_factory=dict)
    color: str = "red"  # no option


OPTIONS = {
    "to": Option("Trip", "Where to."),
    "days": Option("Trip", "How long."),
    "map": Option("Trip", "A map.", "FILE", "none is needed"),
    "fast": Option("Trip", "Hurry."),
    "guided": Option("Trip", "Take a guide.", None, "as you like"),
    "bags": Option("Luggage", "How many."),
    "contents": Option("Luggage", "What is in them.", "NAME=VALUE", "nothing", "--content"),
}


@pytest.fixture
def travel():
    met = []
    app = typer.Typer()

    @app.command()
    @takes(OPTIONS, Trip, Luggage)
    def go(given: dict[str, Any], again: bool = False) -> None:
        met.append((given, again))

    def call(*words):
        return CliRunner().invoke(app, words), met

    return call


def test_what_is_given_arrives_and_the_rest_is_left_to_the_records(travel):
    _, met = travel("--to", "sea")
    assert met == [({"to": "sea"}, False)]
    assert Trip(**met[0][0]) == Trip(to="sea")


def test_options_have_the_types_of_their_fields(travel):
    words = "--to sea --days 3 --map a.png --fast --no-guided --bags 2 --content a=1 --content b=2"
    _, met = travel(*words.split(), "--again")
    given, again = met[0]
    assert again
    assert chosen(Trip, given) == {
        "to": "sea",
        "days": 3,
        "map": Path("a.png"),
        "fast": True,
        "guided": False,
    }
    assert chosen(Luggage, given) == {"bags": 2.0, "contents": ["a=1", "b=2"]}


def test_a_field_without_a_default_is_required(travel):
    shown, met = travel("--days", "3")
    assert (shown.exit_code, met) == (2, [])
    assert "Missing option '--to'" in shown.output


def test_the_help_shows_the_defaults_of_the_records(travel):
    shown = " ".join(travel("--help")[0].output.split())
    for default in ("7", "none is needed", "as you like", "1.5", "nothing"):
        assert f"(default: {default})" in shown
    assert "--color" not in shown


def test_an_option_without_a_field_is_a_mistake():
    with pytest.raises(KeyError, match="weather"):
        takes({"weather": Option("Trip", "Sunny.")}, Trip)
