"""What ``anarchic serve`` refuses, and where its options arrive; workers test that it serves."""

from __future__ import annotations

import hashlib
import socket
import sys

import numpy as np
import pytest

from anarchic import Layout, wire
from anarchic.core.registry import load
from anarchic.server.records import NewUpdate, Publication
from anarchic.server.runs import begin
from anarchic.server.settings import RuleSettings
from anarchic.server.store import open_store
from tests.cli.test_app import COMMANDS


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


LAYOUT = Layout.of({"w": ((2,), "F32")})


@pytest.fixture
def first(tmp_path):
    """The options of a run to begin."""
    wire.save_model(tmp_path / "model.safetensors", LAYOUT, np.zeros(2, np.float32))
    return "--init", tmp_path / "model.safetensors", "--store", tmp_path / "run.db"


def has_run(path):
    store = open_store(path)
    try:
        return store.run() is not None
    finally:
        store.close()


def test_a_port_that_is_taken_is_refused_before_a_run_is_begun(refused, first, tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        told = refused(2, "serve", *first, "--open-enrolment", "--port", port)
    assert f"Cannot listen on 127.0.0.1, port {port}: Address already in use" in told
    assert not has_run(tmp_path / "run.db")


def test_files_that_are_no_certificate_are_named(anarchic, first, tmp_path):
    wrong = tmp_path / "model.safetensors"
    shown = anarchic(
        "serve", *first, "--open-enrolment", "--tls-cert", wrong, "--tls-key", wrong,
        "--port", free_port(),
    )  # fmt: skip
    assert shown.exit_code == 2
    assert f"Error: TLS cannot be set up with {wrong}, {wrong}: " in shown.stderr


def test_who_may_push_is_settled_before_a_run_is_begun(refused, first, tmp_path):
    assert "Nobody may push" in refused(2, "serve", *first)
    remembers = ("--open-enrolment", "--rule", "afa-cs")
    assert "with --cap N" in refused(2, "serve", *first, *remembers)
    assert not has_run(tmp_path / "run.db")


def test_a_run_that_was_not_kept_says_so_when_it_is_replayed(refused, tmp_path):
    one_step(tmp_path / "run.db", keep_payloads=False, history=1, history_bytes=0)
    told = refused(1, "replay", tmp_path / "run.db")
    assert "only a run whose server had --keep-payloads" in told


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_goes_on_keeping_payloads_as_it_did(anarchic, monkeypatch, tmp_path, kept):
    one_step(tmp_path / "run.db", keep_payloads=kept)
    found = []
    monkeypatch.setattr("anarchic.server.serve.listen", lambda service, _: found.append(service))
    anarchic("serve", "--store", tmp_path / "run.db", "--open-enrolment", "--port", free_port())
    assert len(found) == 1
    store = open_store(tmp_path / "run.db")
    assert store.run().keep_payloads is kept
    store.close()


def test_versions_are_evaluated_by_a_module_that_lies_here(anarchic, first, tmp_path, monkeypatch):
    (tmp_path / "own_judge.py").write_text("def judge(snapshot): return {'loss': 0.5}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])  # as scripts have it
    found = []
    monkeypatch.setattr(
        "anarchic.server.optional_parts.Evaluator",
        lambda judging, *_: found.append(load(judging.judge)),
    )
    monkeypatch.setattr("anarchic.server.serve.listen", lambda *_: None)
    words = ("--open-enrolment", "--evaluate", "own_judge:judge", "--port", free_port())
    assert anarchic("serve", *first, *words).exit_code == 0
    assert found[0](None) == {"loss": 0.5}


def one_step(path, **how):
    """A run of one version, made of one update."""
    store = open_store(path, **how)
    begin(store, RuleSettings(m=1), LAYOUT, np.zeros(2, np.float32))
    digest = hashlib.sha256(b"body").digest()
    new = NewUpdate("ann", "1", digest, 0, 1, 0.1, 0, 1.0, 0.0, b"body")
    (receipt,) = store.append([new])
    epoch = store.lead()
    store.publish(Publication(epoch, 0, 1, [(receipt.seq, 1)], b"model", b"state"))
    store.close()


RULES = {  # fixed when the run begins: what is given, and the setting that it is
    "--rule": ("afa-cs", "rule", "afa-cs"),
    "--m": ("3", "m", 3),
    "--server-lr": ("0.5", "server_lr", 0.5),
    "--server-opt": ("adam", "server_opt", "adam"),
    "--server-option": ("epsilon=1e-5", "server_options", {"epsilon": 1e-5}),
    "--staleness-power": ("0.5", "staleness_power", 0.5),
    "--clip": ("2.5", "clip", 2.5),
    "--guard": ("0", "guard", 0.0),
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
    "--join": (None, "join", True),
    "--log-level": ("error", "log_level", "error"),
    "--log-format": ("text", "log_format", "text"),
}
STORE = {
    "--history": ("5", "history", 5),
    "--history-bytes": ("1000", "most_bytes", 1000),
    "--keep-every": ("100", "every", 100),
}
ADDRESS = {
    "--host": ("0.0.0.0", "host", "0.0.0.0"),
    "--port": (str(PORT := free_port()), "port", PORT),
    "--host-name": ("fl.example", "host_name", "fl.example"),
    "--insecure": (None, "insecure", True),
    "--trusted-proxy": ("127.0.0.1", "trusted_proxy", "127.0.0.1"),
    "--admin-port": (str(ADMIN_PORT := free_port()), "admin_port", ADMIN_PORT),
    "--admin-host": ("127.0.0.2", "admin_host", "127.0.0.2"),
    "--admin-tokens": (None, "admin_tokens", True),
    "--public-metrics": (None, "public_metrics", True),
}
TLS_FILES = {"--tls-cert": "tls_cert", "--tls-key": "tls_key", "--client-ca": "client_ca"}
ELSEWHERE = {  # tried where they have their own tests
    *("--store", "--init", "--keep-payloads", "--evaluate", "--model", "--callback"),
    *("--rule-option", "--help", "--bind-names", "--admin-tls", "--config", "--check", "--json"),
    *("--runs", "--keep-best", "--target", "--max-versions", "--compact-after"),
}


@pytest.fixture
def served(anarchic, first, tmp_path, monkeypatch):
    """Call serve up to where it would listen: the service, the address and the run."""
    met = []
    monkeypatch.setattr("anarchic.server.serve.listen", lambda *given: met.extend(given))

    def call(*words):
        shown = anarchic("serve", *first, *words)
        assert shown.exit_code == 0, shown.output
        opened = open_store(tmp_path / "run.db")
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
    assert has(service.store.versions, STORE)
    assert has(address, ADDRESS)


def test_goals_reach_what_pursues_them(served, monkeypatch):
    class NoEvaluator:
        def __init__(self, judge, store, log, callbacks, keeper):
            self.latest, self.keeper = None, keeper

    monkeypatch.setattr("anarchic.server.optional_parts.Evaluator", NoEvaluator)
    monkeypatch.setattr("anarchic.server.evaluate.judge_apart", lambda *_, **__: None)
    goals = ("--keep-best", "loss", "--target", "accuracy=0.95", "--max-versions", "7")
    judge = ("--evaluate", "tests.server.evaluations:named", "--compact-after", "90d")
    service, *_ = served("--open-enrolment", "--port", PORT, *judge, *goals)
    assert service.steering.max_versions == 7
    keeper = service._parts.evaluator.keeper
    assert (keeper._metric.name, keeper._metric.better) == ("loss", "min")
    assert (keeper._target.metric.name, keeper._target.goal) == ("accuracy", 0.95)
    assert service._parts.compactor._after_s == 90 * 86_400


def test_certificates_reach_the_address(served, tmp_path):
    authority = pytest.importorskip("trustme").CA()
    own = authority.issue_cert("127.0.0.1")
    own.cert_chain_pems[0].write_to_path(tmp_path / "--tls-cert")
    own.private_key_pem.write_to_path(tmp_path / "--tls-key")
    authority.cert_pem.write_to_path(tmp_path / "--client-ca")
    given = [word for flag in TLS_FILES for word in (flag, tmp_path / flag)]
    _, address, _ = served("--open-enrolment", "--port", PORT, *given, "--bind-names")
    assert address.bind_names
    assert {flag: getattr(address, name) for flag, name in TLS_FILES.items()} == {
        flag: tmp_path / flag for flag in TLS_FILES
    }


def test_client_certificates_need_tls(refused, tmp_path):
    (tmp_path / "ca").write_text("")
    asked = ("serve", "--store", tmp_path / "run.db", "--client-ca", tmp_path / "ca")
    assert "Client certificates need TLS" in refused(2, *asked)
    asked = ("serve", "--store", tmp_path / "run.db", "--tls-cert", tmp_path / "ca")
    assert "both a certificate and its key" in refused(2, *asked)
    asked = ("serve", "--store", tmp_path / "run.db", "--bind-names")
    assert "--bind-names compares workers' certificates" in refused(2, *asked)
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
