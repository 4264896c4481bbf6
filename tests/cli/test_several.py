"""Options that take several values."""

from __future__ import annotations

import pytest

from anarchic.cli.several import ONE_TEXT, SEVERAL, grid_from, values_of
from anarchic.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "hint", "values"),
    [
        ("0-3,7", int, [0, 1, 2, 3, 7]),
        ("5", int, [5]),
        ("0.5, 1,2e-3", float | None, [0.5, 1.0, 0.002]),
        ("none,0.3", float | None, [None, 0.3]),
        ("afa-cd,fedbuff", str, ["afa-cd", "fedbuff"]),
        ("true,false", bool, [True, False]),
    ],
)
def test_texts_become_values(text, hint, values):
    assert values_of("--x", text, hint) == values


@pytest.mark.parametrize(
    ("text", "hint", "said"),
    [
        ("9-0", int, "ranges such as 0-9, from low to high; got '9-0'"),
        ("0-99999999999", int, "got '0-99999999999'"),
        ("one", int, "--x must be a whole number, got 'one'"),
        ("1,,2", float, "--x must be a number, got ''"),
        ("none", int, "must be a whole number"),
    ],
)
def test_texts_that_are_no_values_are_refused(text, hint, said):
    with pytest.raises(ConfigError, match=said):
        values_of("--x", text, hint)


def test_one_value_is_the_same_for_all_and_several_are_varied():
    grid = grid_from({"rule": "afa-cd,fedbuff", "rounds": "9", "seed": "0-2", "threads": 1})
    assert (grid.base, dict(grid.varied)) == ({"rounds": 9}, {"rule": ["afa-cd", "fedbuff"]})
    assert (list(grid.seeds), grid.compute.threads) == ([0, 1, 2], 1)


def test_switches_and_entries_of_mappings_are_varied_by_name():
    given = {"server_opt": "momentum", "rounds": "5"}
    grid = grid_from(given, ["dynamic-steps=true,false", "server-options.beta=0.5,0.9"])
    assert dict(grid.varied) == {
        "dynamic_steps": [True, False],
        "server_options.beta": [0.5, 0.9],
    }
    assert len(grid.cells()) == 4


def test_pairs_belong_to_the_rules_that_are_varied():
    grid = grid_from({"rule": "fedasync", "rule_options": ["mixing=0.5"]})
    assert grid.cells()[0].settings.rule_options == {"mixing": 0.5}


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ("rounds", "--vary takes NAME=V1,V2"),
        ("round=1,2", "no setting 'round'. Did you mean 'rounds'"),
        ("rule=afa-cd,fedbuff", "rule is given twice"),
        ("server-options=1", "no setting 'server_options'"),
    ],
)
def test_what_cannot_be_varied_is_refused(vary, said):
    with pytest.raises(ConfigError, match=said):
        grid_from({"rule": "afa-cd"}, [vary])


def test_every_setting_has_one_value_or_several():
    assert {"rule", "seed", "server_lr", "data", "epochs"} <= set(SEVERAL)
    assert not set(SEVERAL) & {*ONE_TEXT, "dynamic_steps", "rule_options"}
