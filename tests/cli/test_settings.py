import re
from dataclasses import fields

import pytest

from anarchic.cli.settings import OPTIONS, compute_from, parse_probabilities, settings_from
from anarchic.core.factory import UPDATES_PER_STEP
from anarchic.errors import ConfigError
from anarchic.sim.settings import Settings
from anarchic.train.compute import Compute


def test_every_setting_has_an_option_and_no_option_is_without_a_setting():
    assert sorted(OPTIONS) == sorted(
        f.name for record in (Settings, Compute) for f in fields(record)
    )


def test_nothing_given_is_the_defaults():
    assert settings_from({}) == Settings()
    assert compute_from({}) == Compute()


def test_given_options_override_the_settings_of_a_base():
    base = Settings(rounds=7, local_lr=0.5)
    given = {"rounds": 9, "threads": 2}
    assert settings_from(given, base) == Settings(rounds=9, local_lr=0.5)
    assert compute_from(given, Compute(lookahead=3)) == Compute(lookahead=3, threads=2)


def test_the_help_shows_the_defaults_of_settings(anarchic, monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")
    shown = " ".join(anarchic("simulate", "--help").output.split())
    assert f"(default: {Settings().rounds})" in shown
    assert f"(default: {Settings().local_lr})" in shown
    for option in OPTIONS.values():
        assert option.help[:20] in shown


@pytest.mark.parametrize("command", ["simulate", "timetable"])
def test_the_help_fits_80_columns(anarchic, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    shown = anarchic(command, "--help").output
    assert "…" not in shown
    beside = [line.split("  ")[0].removeprefix("│ ") for line in shown.splitlines()]
    assert {"--max-staleness", "--participation", "--dynamic-steps"} <= set(beside)
    # The sentences have the larger part of the width, so that they read as such.
    assert all(len(part) < 32 for part in beside if part.startswith("--"))
    assert "afa-cd, afa-cs" in " ".join(shown.split()).replace(" │ │ ", " ")


def test_what_none_stands_for_is_what_the_help_says(anarchic):
    shown = anarchic("timetable", "--rounds", 2).output
    assert OPTIONS["workers"].stands_for.startswith("10,")
    assert re.search(r"workers +│ 10 ", shown)
    assert OPTIONS["m"].stands_for.startswith("5,")
    assert "2 rounds of 5" in shown


def test_the_server_counts_to_the_same_m_as_the_simulator():
    assert OPTIONS["m"].stands_for.startswith(f"{UPDATES_PER_STEP},")


def test_options_of_a_rule_get_the_types_that_it_declares():
    given = {"rule": "fedbuff", "rule_options": ["power=1"], "local_rule": "momentum"}
    settings = settings_from({**given, "local_options": ["beta=0.5"]})
    assert (settings.rule_options, settings.local_options) == ({"power": 1.0}, {"beta": 0.5})
    assert isinstance(settings.rule_options["power"], float)


def test_options_of_wrapped_local_rules_get_the_types_that_each_declares():
    pairs = ["max-norm=2", "per-step=1", "keep-state=true"]
    settings = settings_from({"local_rule": "clipnorm+decay+adam", "local_options": pairs})
    assert settings.local_options == {"max_norm": 2.0, "per_step": 1.0, "keep_state": True}


def test_milestones_are_given_as_one_text():
    pairs = ["at-versions=3,6", "drop=0.5"]
    settings = settings_from({"local_rule": "milestones", "local_options": pairs})
    assert settings.local_options == {"at_versions": "3,6", "drop": 0.5}


def test_options_of_the_server_step_get_its_types_too():
    settings = settings_from({"server_opt": "adam", "server_options": ["epsilon=1e-5"]})
    assert settings == Settings(server_opt="adam", server_options={"epsilon": 1e-5})


def test_options_of_the_data_get_the_types_that_the_loader_declares():
    given = {"data": "synthetic", "data_options": ["beta=0", "iid=true", "seed=3"]}
    assert settings_from(given).data_options == {"beta": 0.0, "iid": True, "seed": 3}
    roles = {"data": "shakespeare", "data_options": ["roles=none"]}
    assert settings_from(roles).data_options == {"roles": None}


def test_options_of_a_rule_are_read_for_the_rule_of_the_base():
    base = Settings(rule="fedavg")
    assert settings_from({"rule_options": ["by-samples=true"]}, base).rule_options == {
        "by_samples": True
    }


def test_probabilities():
    assert parse_probabilities("0.25, 0.75") == (0.25, 0.75)


@pytest.mark.parametrize("text", ["", "0.1,,0.2", "0.1;0.2", "a"])
def test_malformed_probabilities_are_refused(text):
    with pytest.raises(ConfigError, match="numbers separated by commas"):
        parse_probabilities(text)
