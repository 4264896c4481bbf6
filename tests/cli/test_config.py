"""``anarchic config``: what it writes can be read again, and says where settings come from."""

from __future__ import annotations

import re
import tomllib
from inspect import Parameter

import pytest

from anarchic.cli.config import as_toml
from anarchic.cli.sources import keys_of, settle, settled

each_command = pytest.mark.parametrize("command", ["serve", "work"])


@each_command
def test_the_example_has_every_setting_and_can_be_read(anarchic, tmp_path, command):
    text = anarchic("config", "example", command).output
    known = keys_of(command).known
    config = tmp_path / "all.toml"
    config.write_text(text)
    assert set(settled(keys_of(command), {}, config)) == {
        name for name, (default, _) in known.items() if default is Parameter.empty
    }
    everything = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.M)
    assert list(tomllib.loads(everything)) == list(known)
    config.write_text(everything)
    found = settle(keys_of(command), {}, config)  # of the right types, all of them
    plain = (str, int, float, bool)
    for name, (default, _) in known.items():
        assert found[name].value == default or not isinstance(default, plain)


@each_command
def test_what_is_shown_says_the_same_again(anarchic, tmp_path, monkeypatch, command):
    config = tmp_path / "c.toml"
    config.write_text('local_rule = "prox"\n' + ('store = "r.db"' if command == "serve" else ""))
    options = "ANARCHIC_RULE_OPTIONS" if command == "serve" else "ANARCHIC_LOCAL_OPTIONS"
    monkeypatch.setenv(options, "power=1" if command == "serve" else "mu=0.5")
    monkeypatch.setenv("ANARCHIC_RULE", "fedbuff")
    monkeypatch.setenv("ANARCHIC_SERVER", "http://a")
    first = settle(keys_of(command), {}, config)
    shown = anarchic("config", "show", command, "--config", config).output
    assert f'local_rule = "prox"  # {config}' in shown
    assert f"  # {options}" in shown
    again = tmp_path / "elsewhere" / "again.toml"
    again.parent.mkdir()
    again.write_text(shown)
    for name in (options, "ANARCHIC_RULE", "ANARCHIC_SERVER"):
        monkeypatch.delenv(name)
    second = settle(keys_of(command), {}, again)
    values = {name: each.value for name, each in second.items()}
    pairs = {"rule_options": {"power": 1.0}, "local_options": {"mu": 0.5}}
    for name, each in first.items():
        assert values[name] == (pairs[name] if options.endswith(name.upper()) else each.value)


def test_a_password_is_not_shown_and_neither_is_a_token(anarchic, monkeypatch):
    monkeypatch.setenv("ANARCHIC_STORE", "postgresql://ann:s3cret@db/run")
    shown = anarchic("config", "show").output
    assert '# store = "postgresql://ann:***@db/run"  # ANARCHIC_STORE; its password' in shown
    monkeypatch.setenv("ANARCHIC_STORE", "postgresql://db/run?user=ann&password=s3cret&a=b")
    second = anarchic("config", "show").output
    assert '"postgresql://db/run?user=ann&password=***&a=b"' in second
    monkeypatch.setenv("ANARCHIC_TOKEN", "ann.s3cret")
    monkeypatch.setenv("ANARCHIC_PROXY", "http://ann:s3cret@proxy:3128")
    worker = anarchic("config", "show", "work").output
    assert "s3cret" not in shown + second + worker
    tomllib.loads(shown + worker)


@pytest.mark.parametrize(
    "value",
    [True, 3, 1e-9, 'a "quoted" \\ text\n\t\x7f\x01 é 🙂', {"a b": {"c": [1, "x"]}}, ["u", "v"]],
)
def test_values_survive_toml(value):
    assert tomllib.loads(f"key = {as_toml(value)}")["key"] == value
    assert tomllib.loads(f"key = {as_toml(float('inf'))}")["key"] == float("inf")


def test_a_variable_that_does_not_exist_is_told_as_by_the_command_itself(anarchic, monkeypatch):
    monkeypatch.setenv("ANARCHIC_SERVR_LR", "0.5")
    shown = anarchic("config", "show", "serve")
    told = "Warning: There is no variable ANARCHIC_SERVR_LR. Did you mean ANARCHIC_SERVER_LR?\n"
    assert shown.stderr == told
    assert shown.exit_code == 0
    assert "SERVR" not in shown.stdout  # which is a settings file


def test_a_command_that_takes_no_file_is_refused(anarchic):
    assert anarchic("config", "show", "simulate").exit_code == 2
