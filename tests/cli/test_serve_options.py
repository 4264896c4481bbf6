"""Every option of ``anarchic serve`` arrives where it is meant to."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic import wire
from anarchic.server.store import open_store
from tests.cli.test_app import COMMANDS
from tests.cli.test_serve import free_port
from tests.server.make import LAYOUT

trustme = pytest.importorskip("trustme")

RULES = {  # fixed when the run begins: what is given, and the setting that it is
    "--rule": ("afa-cs", "rule", "afa-cs"),
    "--m": ("3", "m", 3),
    "--server-lr": ("0.5", "server_lr", 0.5),
    "--server-opt": ("adam", "server_opt", "adam"),
    "--server-option": ("epsilon=1e-5", "server_options", {"epsilon": 1e-5}),
    "--staleness-power": ("0.5", "staleness_power", 0.5),
    "--clip": ("2.5", "clip", 2.5),
    "--expire-after": ("9", "expire_after", 9),
    "--cap": ("7", "cap", 7),
    "--local-rule": ("scaffold", "local_rule", "scaffold"),
    "--workers": ("12", "workers", 12),
}
LIMITS = {
    "--per-worker": ("4", "per_worker", 4),
    "--max-staleness": ("11", "max_staleness", 11),
    "--max-norm": ("1.5", "max_norm", 1.5),
    "--updates-per-minute": ("30", "updates_per_minute", 30.0),
    "--least-rate": ("1000", "least_rate", 1000.0),
}
SETTINGS = {
    "--step-after-s": ("2", "step_after_s", 2.0),
    "--open-enrolment": (None, "open_enrolment", True),
    "--public-model": (None, "public_model", True),
}
STORE = {"--history": ("5", "_history", 5)}
ADDRESS = {
    "--host": ("0.0.0.0", "host", "0.0.0.0"),
    "--port": (str(PORT := free_port()), "port", PORT),
    "--insecure": (None, "insecure", True),
}
TLS_FILES = {"--tls-cert": "tls_cert", "--tls-key": "tls_key", "--client-ca": "client_ca"}
ELSEWHERE = {  # tried where they have their own tests
    *("--store", "--init", "--keep-payloads", "--evaluate", "--rule-option", "--help"),
}


@pytest.fixture
def served(anarchic, tmp_path, monkeypatch):
    """Call serve up to where it would listen: the service, the address and the run."""
    init, store = tmp_path / "model.safetensors", tmp_path / "run.db"
    wire.save_model(init, LAYOUT, np.zeros(LAYOUT.dim, np.float32))
    met = []
    monkeypatch.setattr("anarchic.server.serve.listen", lambda *given: met.extend(given))

    def call(*words):
        shown = anarchic("serve", "--init", init, "--store", store, *words)
        assert shown.exit_code == 0, shown.output
        opened = open_store(store)
        run = opened.run()
        opened.close()
        return *met, run

    return call


def words(options):
    return [word for flag, (value, *_) in options.items() for word in (flag, value) if word]


def has(found, options):
    return {name: getattr(found, name) for _, name, _ in options.values()} == {
        name: value for _, name, value in options.values()
    }


def test_every_option_ends_in_its_setting(served):
    service, address, run = served(*words(RULES | LIMITS | SETTINGS | STORE | ADDRESS))
    assert {name: run.settings[name] for _, name, _ in RULES.values()} == {
        name: value for _, name, value in RULES.values()
    }
    assert has(service.rules, RULES)
    assert has(service.settings.limits, LIMITS)
    assert has(service.settings, SETTINGS)
    assert has(service._store, STORE)
    assert has(address, ADDRESS)


def test_certificates_reach_the_address(served, tmp_path):
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    own.cert_chain_pems[0].write_to_path(tmp_path / "--tls-cert")
    own.private_key_pem.write_to_path(tmp_path / "--tls-key")
    authority.cert_pem.write_to_path(tmp_path / "--client-ca")
    given = [word for flag in TLS_FILES for word in (flag, tmp_path / flag)]
    _, address, _ = served("--open-enrolment", "--port", PORT, *given)
    assert {flag: getattr(address, name) for flag, name in TLS_FILES.items()} == {
        flag: tmp_path / flag for flag in TLS_FILES
    }


def test_client_certificates_need_tls(refused, tmp_path):
    (tmp_path / "ca").write_text("")
    asked = ("serve", "--store", tmp_path / "run.db", "--client-ca", tmp_path / "ca")
    assert "Client certificates need TLS" in refused(2, *asked)
    asked = ("serve", "--store", tmp_path / "run.db", "--tls-cert", tmp_path / "ca")
    assert "both a certificate and its key" in refused(2, *asked)
    assert not (tmp_path / "run.db").exists()


@pytest.mark.parametrize("port", [0, 65536])
def test_a_port_that_does_not_exist_is_refused(refused, tmp_path, port):
    asked = ("serve", "--store", tmp_path / "run.db", "--port", port)
    assert "a number from 1 to 65535" in refused(2, *asked)
    assert not (tmp_path / "run.db").exists()


def test_no_option_is_left_out():
    flags = {flag for parameter in COMMANDS["serve"].params for flag in parameter.opts}
    tried = {*RULES, *LIMITS, *SETTINGS, *STORE, *ADDRESS, *TLS_FILES, *ELSEWHERE}
    assert flags | {"--help"} == tried
