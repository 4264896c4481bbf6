"""Options of a command from a table and the fields of records; values that are pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from anarchic.cli.options import Option, chosen, parse_options, table, takes
from anarchic.core.local import Scaffold
from anarchic.core.rules import AfaCd, AfaCs, FedAsync, FedAvg, GeneralizedAsyncSgd
from anarchic.data import load_shakespeare
from anarchic.errors import ConfigError


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


OPTIONS = table("""
Trip
  to: Where to.
  days: How long.
  map FILE: A map. (default: none is needed)
  fast: Hurry.
  guided: A guide,
    or none. (default: as you
    like)
  again: Once more.
Luggage
  bags: How many.
  contents: What is in them: pairs. (default: nothing)
""")


def test_a_table_is_read_by_groups_and_indents():
    assert OPTIONS["map"] == Option("Trip", "A map.", "FILE", "none is needed")
    assert OPTIONS["guided"] == Option("Trip", "A guide, or none.", None, "as you like")
    assert OPTIONS["contents"] == Option("Luggage", "What is in them: pairs.", None, "nothing")
    with pytest.raises(AssertionError, match="neither an option nor a group:   no-name: Where"):
        table("  no-name: Where to.")
    assert table("  to MODULE:NAME: A: b.") == {"to": Option("Options", "A: b.", "MODULE:NAME")}


@pytest.fixture
def travel():
    met = []
    app = typer.Typer()

    @app.command()
    @takes(OPTIONS, Trip, Luggage)
    def go(given: dict[str, Any], again: bool = False) -> None:
        met.append((given, again))

    def call(*words):
        return CliRunner().invoke(app, words, env={"COLUMNS": "120"}), met

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
        takes(table("  weather: Sunny."), Trip)(lambda given: None)


@pytest.mark.parametrize(
    ("kind", "pair", "expected"),
    [
        (FedAsync, "mixing=0.5", {"mixing": 0.5}),
        (FedAsync, "history=3", {"history": 3}),
        (
            GeneralizedAsyncSgd,
            "probabilities=ann:.5,bob:.2",
            {"probabilities": "ann:.5,bob:.2"},
        ),
        (FedAvg, "by_samples=TRUE", {"by_samples": True}),
        (FedAvg, "by-samples=false", {"by_samples": False}),
        (AfaCs, "expire-after=4", {"expire_after": 4}),
        (load_shakespeare, "seed=7", {"seed": 7}),
        (AfaCs, "cap=None", {"cap": None}),
        (Scaffold, "option=1", {"option": 1}),
        (AfaCd, "unknown=1", {"unknown": 1.0}),
        (None, "anything=1", {"anything": 1.0}),
    ],
)
def test_values_get_the_type_of_their_field(kind, pair, expected):
    found = parse_options("--rule-option", [pair], kind)
    assert found == expected
    assert [type(value) for value in found.values()] == [type(v) for v in expected.values()]


@pytest.mark.parametrize(
    ("kind", "pairs", "message"),
    [
        (FedAsync, ["mixing"], "NAME=VALUE"),
        (FedAsync, ["=1"], "NAME=VALUE"),
        (FedAsync, ["mixing="], "NAME=VALUE"),
        (FedAsync, ["mixing=half"], "must be a number, got 'half'"),
        (FedAsync, ["mixing=none"], "must be a number, got 'none'"),
        (FedAsync, ["history=2.5"], "must be a whole number, got '2.5'"),
        (FedAvg, ["by_samples=1"], "must be true or false, got '1'"),
        (AfaCd, ["step=sgd"], "--server-opt"),
        (FedAsync, ["power=1", "power=2"], "twice"),
    ],
)
def test_malformed_options_are_refused(kind, pairs, message):
    with pytest.raises(ConfigError, match=message):
        parse_options("--rule-option", pairs, kind)
