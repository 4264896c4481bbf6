"""``anarchic work --check``: what it finds, and that it neither pushes nor writes."""

from __future__ import annotations

import json
import ssl
from datetime import UTC, datetime, timedelta

import httpx
import numpy as np
import pytest

from anarchic import Layout
from anarchic.worker import FunctionTask, Spool, WorkSettings
from anarchic.worker.check import check
from tests.cli.conftest import contents
from tests.worker import faulty

TASK = FunctionTask(faulty.LAYOUT, lambda x: (x - 1, 0.5, 1))
OTHER = FunctionTask(Layout.of({"x": ((3,), "F32")}), lambda x: (x, 0.5, 1))
NAN = FunctionTask(faulty.LAYOUT, lambda x: (x * np.nan, 0.5, 1))


@pytest.fixture(autouse=True)
def plain(monkeypatch, tmp_path):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("ANARCHIC_TOKEN", raising=False)


def found(server, task=TASK, **more):
    who = {} if "token_file" in more else {"name": "ann"}
    findings = check(WorkSettings(server=server, **who, **more), task)
    return {each.check: (each.status, each.message) for each in findings}


def not_ok(findings):
    return {name: told for name, told in findings.items() if told[0] != "ok"}


def test_a_worker_that_could_take_part_is_told_so_and_sends_nothing(listening, tmp_path):
    findings = found(listening.url)
    assert not_ok(findings) == {}
    assert list(findings) == [
        *("settings", "proxy", "name", "connect", "tls", "token", "clock", "answer", "run"),
        *("task", "model", "step", "spool"),
    ]
    assert "loss 0.5" in findings["step"][1]
    assert listening.scripted.posts == []
    assert contents(tmp_path) == {}


def test_settings_are_looked_at_before_anybody_is_asked(listening):
    assert list(found(listening.url, policy="never")) == ["settings"]
    assert list(found("ftp://server")) == ["settings"]
    assert "/none" in found(listening.url, token_file="/none")["settings"][1]
    assert listening.scripted.pulls == []


@pytest.mark.parametrize(
    ("task", "check", "told"),
    [
        (OTHER, "model", "The server trains another model than the task"),
        (NAN, "step", "The direction is not finite"),
        (FunctionTask(faulty.LAYOUT, lambda x: 1 / 0), "step", "ZeroDivisionError: division"),
        (None, "task", "What is to be trained?"),
    ],
)
def test_a_task_that_does_not_work_is_told(listening, task, check, told):
    findings = not_ok(found(listening.url, task))
    assert findings[check][0] == "failed"
    assert told in findings[check][1]


def test_a_server_that_is_away_and_a_name_that_leads_nowhere_are_told(listening):
    away = not_ok(found(f"{listening.url},http://127.0.0.1:9"))
    assert "Does the server run" in away["connect"][1]
    assert "1 of 2 servers gave no model" in away["run"][1]
    assert {status for status, _ in away.values()} == {"warning"}  # the other one will do
    away = not_ok(found(f"http://no-such-name.invalid,{listening.url}"))
    assert {status for status, _ in away.values()} == {"warning"}
    away = found("http://127.0.0.1:9,http://127.0.0.1:7")
    assert away["run"] == ("failed", "No server gave a model: see above.")
    unknown = not_ok(found("http://no-such-name.invalid"))
    assert "no-such-name.invalid has no address" in unknown["name"][1]
    assert "No server gave a model" in unknown["run"][1]


@pytest.mark.parametrize(
    ("state", "status", "told"),
    [
        ("running", "ok", "run run-a."),
        ("paused", "warning", "paused the run: updates wait"),
        ("ended", "failed", "has ended: it takes no more updates"),
        (None, "ok", "run run-a."),  # an earlier server, or a proxy that does not pass it on
    ],
)
def test_a_run_that_takes_no_updates_is_told(listening, state, status, told):
    listening.scripted.condition = state
    findings = found(listening.url)
    assert findings["run"][0] == status
    assert told in findings["run"][1]
    assert listening.scripted.posts == []


def test_servers_of_two_runs_are_told(listening):
    other = faulty.Listening(faulty.Scripted(run="run-b"))
    assert "give servers that share a store" in not_ok(found([listening.url, other.url]))["run"][1]
    other.close()


def test_what_answers_in_the_place_of_the_server_is_told(listening):
    listening.scripted.pull_faults = [httpx.Response(200, html="<p>Please log in</p>")]
    assert '"Please log in"' in not_ok(found(listening.url))["answer"][1]
    listening.scripted.pull_faults = [httpx.Response(502, html="<h1>Bad gateway</h1>")]
    assert "The proxy in front of the server cannot reach it" in found(listening.url)["connect"][1]
    refused = {"error": "unauthorized", "message": "No valid token.", "remedy": "Ask for one."}
    listening.scripted.pull_faults = [httpx.Response(401, json=refused)]
    assert found(listening.url)["token"] == ("failed", "No valid token. Ask for one.")
    ended = {"error": "run_ended", "message": "The run has ended.", "remedy": "Pull the model."}
    listening.scripted.pull_faults = [httpx.Response(410, json=ended)]
    assert found(listening.url)["answer"] == ("failed", "The run has ended. Pull the model.")


@pytest.mark.parametrize(
    ("told", "status", "message"),
    [
        ({"rights": ["pull", "push"], "expires_s": None}, "ok", "It lets bob pull and push."),
        ({"rights": ["pull"], "expires_s": None}, "failed", "It lets bob pull, not push"),
        ({"rights": ["push"], "expires_s": 1e9}, "warning", "until 2001-09-09 01:46 UTC only"),
        ({"rights": 3}, "failed", "not that of an anarchic server"),
        (None, "ok", "the server does not tell its rights"),
    ],
)
def test_the_rights_of_a_token_are_told(listening, tmp_path, told, status, message):
    (tmp_path / "bob.token").write_text("bob.s3cret\n")
    scripted = listening.scripted

    class Telling(faulty.Scripted):
        def __call__(self, request):
            if request.url.path != "/v1/token":
                return scripted(request)
            body = json.dumps({"worker": "bob", **(told or {})})
            return httpx.Response(404 if told is None else 200, content=body)

    listening.scripted = Telling()
    findings = found(listening.url, token_file=tmp_path / "bob.token")
    assert findings["token"][0] == status
    assert message in findings["token"][1]
    assert "s3cret" not in str(findings)


def test_clocks_that_differ_are_told(listening):
    handler = listening.http.RequestHandlerClass
    handler.date_time_string = lambda *_: "Mon, 01 Jan 2024 00:00:00 GMT"
    status, told = found(listening.url)["clock"]
    assert status == "warning"
    assert "s ahead of the server" in told
    handler.date_time_string = lambda *_: "soon"
    assert found(listening.url)["clock"] == ("ok", "The server does not say the time.")


def test_a_proxy_for_this_very_machine_is_told(listening, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://ann:s3cret@127.0.0.1:9")
    findings = not_ok(found(listening.url))
    assert findings["proxy"][0] == "warning"
    assert "set NO_PROXY=127.0.0.1" in findings["proxy"][1]
    assert "s3cret" not in str(findings)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert not_ok(found(listening.url)) == {}


def test_a_spool_in_use_full_or_closed_is_told(listening, tmp_path, monkeypatch):
    spool = Spool(tmp_path / "spool")
    told = not_ok(found(listening.url, spool=tmp_path / "spool"))["spool"]
    assert told[0] == "warning"
    assert "in use by a worker" in told[1]
    spool.close()
    assert found(listening.url, spool=tmp_path / "spool")["spool"][0] == "ok"
    (tmp_path / "file").write_text("")
    closed = found(listening.url, spool=tmp_path / "file" / "spool")["spool"]
    assert closed[0] == "failed"
    usage = type("Usage", (), {"free": 1_000})
    monkeypatch.setattr("anarchic.worker.check.shutil.disk_usage", lambda _: usage)
    assert "free some space" in found(listening.url, spool=tmp_path)["spool"][1]


@pytest.mark.parametrize(
    ("name", "days", "trusted", "status", "told"),
    [
        ("127.0.0.1", 300, True, "ok", "The server's certificate is valid until"),
        ("127.0.0.1", 5, True, "warning", "ask the operator to renew it"),
        ("127.0.0.1", -1, True, "failed", "The server's certificate has expired"),
        ("example.org", 300, True, "failed", "its certificate is for another"),
        ("127.0.0.1", 300, False, "failed", "give the certificate of its authority as ca_file"),
    ],
)
def test_the_certificate_of_the_server_is_told(tmp_path, name, days, trusted, status, told):
    trustme = pytest.importorskip("trustme")
    authority, now = trustme.CA(), datetime.now(UTC)
    dates = {"not_before": now - timedelta(days=9), "not_after": now + timedelta(days=days)}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name, **dates).configure_cert(context)
    (authority if trusted else trustme.CA()).cert_pem.write_to_path(tmp_path / "ca.pem")
    server = faulty.Listening(faulty.Scripted(), tls=context)
    findings = found(server.url, ca_file=tmp_path / "ca.pem")
    server.close()
    assert findings["tls"][0] == status
    assert told in findings["tls"][1]
