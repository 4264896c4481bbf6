"""Settings from flags, the environment and a file: which counts, and what is refused."""

from __future__ import annotations

import pytest

from anarchic.cli import serve, work
from anarchic.cli.sources import settle, settled
from anarchic.errors import ConfigError


@pytest.fixture
def file(tmp_path):
    def write(text, name="server.toml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def of_serve(flags, config=None):
    return settled(serve.KEYS, flags, config)


def test_a_flag_counts_before_a_variable_before_the_file_before_the_default(file, monkeypatch):
    config = file('store = "a.db"\nport = 1\nm = 2\nhistory = 3\n')
    monkeypatch.setenv("ANARCHIC_PORT", "11")
    monkeypatch.setenv("ANARCHIC_M", "12")
    found = settle(serve.KEYS, {"port": 21}, config)
    shown = {name: (found[name].value, found[name].source) for name in ("port", "m", "history")}
    assert shown == {"port": (21, "flag"), "m": (12, "ANARCHIC_M"), "history": (3, str(config))}
    assert (found["host"].value, found["host"].source) == ("127.0.0.1", "default")
    assert "host" not in settled(serve.KEYS, {"port": 21}, config)


def test_relative_paths_start_at_the_file_and_addresses_stay(file, tmp_path):
    config = file('store = "run.db"\ninit = "m.safetensors"\ntls_cert = "/etc/cert.pem"')
    found = of_serve({}, config)
    assert found["store"] == str(tmp_path / "run.db")
    assert found["init"] == str(tmp_path / "m.safetensors")
    assert str(found["tls_cert"]) == "/etc/cert.pem"
    for address in ("postgresql://host/run", f"sqlite:///{tmp_path}/run.db"):
        assert of_serve({}, file(f'store = "{address}"'))["store"] == address
    assert of_serve({}, file('store = "sqlite:///run.db"'))["store"] == (
        f"sqlite:///{tmp_path}/run.db"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1", "no setting 'prot' of anarchic serve. Did you mean 'port'?"),
        ("task = 'a:b'", "It is one of anarchic work."),
        ("port = '8780'", "port must be a whole number, got '8780'"),
        ("port = 1.5", "port must be a whole number, got 1.5"),
        ("open_enrolment = 1", "open_enrolment must be True or False, got 1"),
        ("rule_options = 3", "rule_options must be a mapping of names to values, got 3"),
        ("host = 2026-01-01", "host must be a text, got datetime.date(2026, 1, 1)"),
        ("[server]\nport = 1", "there is no setting 'server' of anarchic serve. It is one of"),
        ("port = ", "is no TOML (Invalid value (at end of document))"),
        ("token = 'ann.s3cret'", 'write token_file = "FILE" instead'),
        ("x = " + "[" * 5_000, "its brackets are too deep"),
    ],
)
def test_what_a_file_cannot_say_is_refused_with_its_name(file, text, told):
    config = file(f'store = "a.db"\n{text}' if not text.startswith("[") else text)
    with pytest.raises(ConfigError) as refused:
        of_serve({}, config)
    assert told in str(refused.value)
    assert str(config) in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_file_that_is_none_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        of_serve({}, tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read: It is a directory"):
        of_serve({}, tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is no TOML"):
        of_serve({}, tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", " 99 ", 99),
        ("server_lr", "1e-3", 1e-3),
        ("open_enrolment", "yes", True),
        ("open_enrolment", "0", False),
        ("keep_payloads", "true", True),
        ("server_options", "epsilon=1e-5, beta1=0.5", ["epsilon=1e-5", "beta1=0.5"]),
    ],
)
def test_variables_are_read_as_their_settings_are(monkeypatch, name, text, value):
    monkeypatch.setenv(f"ANARCHIC_{name.upper()}", text)
    assert of_serve({"store": "a.db"})[name] == value
    monkeypatch.setenv(f"ANARCHIC_{name.upper()}", "")  # as compose files leave them
    assert name not in of_serve({"store": "a.db"})


def test_a_variable_of_the_wrong_type_is_named(monkeypatch):
    monkeypatch.setenv("ANARCHIC_PORT", "http")
    with pytest.raises(ConfigError, match="ANARCHIC_PORT must be a whole number, got 'http'"):
        of_serve({"store": "a.db"})
    monkeypatch.setenv("ANARCHIC_PORT", "1")
    monkeypatch.setenv("ANARCHIC_INSECURE", "maybe")
    with pytest.raises(ConfigError, match="ANARCHIC_INSECURE must be true or false, got 'maybe'"):
        of_serve({"store": "a.db"})


def test_an_unknown_variable_is_told_in_one_line_and_changes_nothing(monkeypatch, capsys):
    monkeypatch.setenv("ANARCHIC_STROE", "b.db")
    monkeypatch.setenv("ANARCHIC_DATA", "/data")
    monkeypatch.setenv("ANARCHIC_THREADS", "1")
    monkeypatch.setenv("ANARCHIC_SERVER", "http://a")  # of work
    assert of_serve({"store": "a.db"}) == {"store": "a.db"}
    warned = capsys.readouterr().err.splitlines()
    assert "Warning: There is no variable ANARCHIC_STROE. Did you mean ANARCHIC_STORE?" in warned
    assert not [line for line in warned if "DATA" in line or "THREADS" in line or "SERVER" in line]


def test_what_is_given_nowhere_and_has_no_default_is_asked_for(monkeypatch):
    monkeypatch.delenv("ANARCHIC_SERVER", raising=False)
    with pytest.raises(ConfigError, match="server is missing: give --server, set ANARCHIC_SERVER"):
        settled(work.KEYS, {}, None)


def test_the_file_itself_may_be_named_by_a_variable(file, monkeypatch):
    monkeypatch.setenv("ANARCHIC_CONFIG", str(file('store = "a.db"\nport = 5')))
    assert of_serve({})["port"] == 5
    assert of_serve({}, file('store = "b.db"\nport = 6', "other.toml"))["port"] == 6


def test_a_token_of_the_environment_counts_before_the_token_file_of_a_file(file, monkeypatch):
    config = file('server = "http://a"\ntoken_file = "t"')
    assert settled(work.KEYS, {}, config)["token_file"] == config.parent / "t"
    monkeypatch.setenv("ANARCHIC_TOKEN", "ann.s3cret")
    assert settled(work.KEYS, {}, config)["token_file"] is None
    assert settled(work.KEYS, {"token_file": "u"}, config)["token_file"] == "u"


def test_what_kubernetes_sets_for_a_service_is_no_setting(monkeypatch, capsys):
    monkeypatch.setenv("ANARCHIC_PORT", "tcp://10.0.0.1:8780")
    monkeypatch.setenv("ANARCHIC_PORT_8780_TCP_ADDR", "10.0.0.1")
    monkeypatch.setenv("ANARCHIC_SERVICE_HOST", "10.0.0.1")
    assert of_serve({"store": "a.db"}) == {"store": "a.db"}
    assert "PORT" not in capsys.readouterr().err
