"""What ``anarchic serve`` refuses, and when; that it serves is tested with workers."""

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
    one_step(tmp_path / "run.db", keep_payloads=False, history=1)
    told = refused(1, "replay", tmp_path / "run.db")
    assert "dropped its first model and updates: only a run whose server had --keep-pay" in told


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
        "anarchic.server.serve.Evaluator", lambda name, *_: found.append(load(name))
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


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
