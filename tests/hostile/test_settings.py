"""Settings of the wrong type, or that ask for too much: refused by name."""

import pytest
from typer.testing import CliRunner

from anarchic.cli.app import app
from anarchic.core.factory import RuleSettings
from anarchic.core.reading import shown
from anarchic.errors import ConfigError
from anarchic.worker import Connection, Retry, WorkPlan, WorkSettings
from anarchic.worker import run as work


@pytest.mark.parametrize(
    "options",
    [
        ["--local-steps", "2000000000"],
        ["--local-steps", "2000000", "--batch", "64"],
        ["--batch", "2000000000"],
        ["--workers", "2000000000"],
        ["--rounds", "20000000000000"],
        ["--m", "20000000000000"],
    ],
    ids=" ".join,
)
def test_settings_that_ask_for_too_much_are_refused(options):
    result = CliRunner().invoke(app, ["simulate", "--rounds", "1", *options])
    assert result.exit_code in (1, 2), result.output
    assert result.output.count("Error: ") == 1
    assert isinstance(result.exception, SystemExit)


@pytest.mark.tried(
    "settings of the wrong type, such as a port in quotes",
    before="a bare TypeError",
    now="a ConfigError that names the setting",
)
@pytest.mark.parametrize("value", ["text", [], {}, object(), b"5", 1j, True, float("nan")])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (RuleSettings, "m"),
        (RuleSettings, "cap"),
        (Connection, "timeout_s"),
        (Connection, "least_rate"),
        (Retry, "tries"),
        (Retry, "first_s"),
        (WorkPlan, "local_lr"),
        (WorkPlan, "updates"),
        ("WorkSettings", "updates"),
        ("WorkSettings", "timeout_s"),
        ("Limits", "burst"),
        ("Limits", "least_rate"),
        ("ServerSettings", "step_after_s"),
        ("RunSettings", "history"),
        ("Address", "port"),
    ],
)
def test_a_setting_of_the_wrong_type_is_named(kind, name, value):
    settings = pytest.importorskip("anarchic.server.settings")
    needs = {"WorkSettings": {"server": "http://a", "task": "t"}, "RunSettings": {"store": "a.db"}}
    given = {**needs.get(kind, {}), name: value}
    if isinstance(kind, str):
        kind = WorkSettings if kind == "WorkSettings" else getattr(settings, kind)
    if value != value and kind is WorkSettings:  # is checked by the Connection that is made of it
        return
    with pytest.raises(ConfigError, match=name):
        kind(**given)


@pytest.mark.parametrize("name", ["server", "task", "policy", "dtype", "local_rule", "spool"])
@pytest.mark.parametrize("value", [5, [], b"text"])
def test_a_text_of_the_wrong_type_is_named(name, value):
    with pytest.raises(ConfigError, match=f"^{name} must be a (text|path)"):
        WorkSettings(**{"server": "http://a", "task": "t", name: value})


@pytest.mark.parametrize(
    "given",
    [
        {"run": 5},
        {"run": {"store": "a.db"}},
        {"rules": 5},
        {"rules": {"m": "5"}},
        {"rules": {"mm": 5}},
        {"settings": "text"},
        {"address": "127.0.0.1:80"},
    ],
    ids=shown,
)
def test_a_server_is_not_started_with_other_things_than_settings(given, tmp_path):
    server = pytest.importorskip("anarchic.server")
    first = server.RunSettings(store=tmp_path / "a.db", init=tmp_path / "model")
    with pytest.raises(ConfigError, match=r"must be|There is no setting 'mm'"):
        server.run(**{"run": first, **given})
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize("value", [5, "text", {}])
def test_records_inside_records_are_checked(value):
    with pytest.raises(ConfigError, match="retry must be a Retry"):
        Connection(retry=value)
    with pytest.raises(ConfigError, match="settings must be a WorkSettings"):
        work(value)
