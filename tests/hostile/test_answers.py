"""Answers that no honest server gives, to the worker of the SDK."""

import gzip
import json
import logging

import pytest

from anarchic.errors import AnarchicError, WorkerError
from anarchic.worker import Connection, Retry, Worker, WorkPlan
from anarchic.worker.task import FunctionTask
from tests.hostile.answers import ACCEPTED, HostileServer, answer, snapshot
from tests.hostile.impatient import ONCE, push, wire_layout, worker

DEEP = b"[" * 100_000


def told(**changes):
    return json.dumps({"status": "accepted", "version": 1, "buffered": 0, **changes}).encode()


# What an answer says


@pytest.mark.tried(
    "answers to an update that are no answer, such as 100,000 open brackets or version 1e999",
    before="the worker ended with RecursionError or OverflowError",
    now="the update is sent again",
)
@pytest.mark.parametrize(
    "body",
    [
        DEEP,
        b'{"a":' * 100_000,
        told().replace(b'"version": 1', b'"version": 1e999'),
        told().replace(b'"version": 1', b'"version": NaN'),
        told().replace(b'"version": 1', b'"version": ' + b"9" * 5_000),
        told(version=-1),
        told(version=True),
        told(version="1"),
        told(buffered=1.5),
        told(status=["accepted"]),
        b'{"status": "accepted"}',
        b"[]",
        b"null",
        b"\xff\xfe",
        b"",
    ],
    ids=lambda body: body[:45].decode("latin-1"),
)
def test_an_answer_that_is_none_is_asked_for_again(body):
    with HostileServer(POST=[answer(body, "202 Accepted"), ACCEPTED]) as server:
        with worker(server, connection={"retry": Retry(tries=2, first_s=0.0)}) as someone:
            assert push(someone).version == 1
        server.answers["POST"] = answer(body, "202 Accepted")
        with worker(server) as someone, pytest.raises(AnarchicError):
            push(someone)


@pytest.mark.parametrize("body", [DEEP, b'{"error": [], "message": {}}', b'{"error":"\x1b"}', b"5"])
def test_a_refusal_that_is_none_is_told_by_its_status(body):
    with HostileServer(GET=answer(body, "404 Not Found")) as server, worker(server) as someone:
        with pytest.raises(WorkerError, match=r"HTTP 404 Not Found\.$") as failed:
            someone.pull()
        assert failed.value.code == "http_404"


@pytest.mark.tried(
    "terminal escapes in a refusal, a reason phrase, a redirect and a tensor's name",
    before="printed raw on the terminal of who runs the worker",
    now="printed as \\x1b and cut to a line",
)
@pytest.mark.parametrize(
    "said",
    [
        answer(json.dumps({"error": "no", "message": "\x1b[2J\x07" * 9000}).encode(), "403 No"),
        answer(b"", "404 N\x9bo"),
        answer(b"", "301 Moved", Location="http://\x9b31m/" + "a" * 5_000),
    ],
    ids=["refusal", "reason", "redirect"],
)
def test_what_a_server_says_is_printable(said):
    with HostileServer(GET=said) as server, worker(server) as someone:
        with pytest.raises(AnarchicError) as failed:
            someone.pull()
        assert str(failed.value).isprintable()
        assert len(str(failed.value)) < 2_000


def test_the_name_of_a_tensor_is_printable():
    task = FunctionTask(wire_layout(), lambda x: (x, 0.0, 1))
    named = answer(snapshot({"\x1b]0;mine\x07": [2], "\u202egnp": [1]}))
    with HostileServer(GET=named) as server, worker(server) as someone:
        with pytest.raises(AnarchicError, match="differ in") as failed:
            someone.run(task, WorkPlan(updates=1))
        assert str(failed.value).isprintable()


@pytest.mark.parametrize(
    "said",
    [
        answer(snapshot(version="1e999")),
        answer(snapshot(version="-1")),
        answer(snapshot(run="a\x1b")),
        answer((2**63).to_bytes(8, "little") + b"{}"),
        answer(len(DEEP).to_bytes(8, "little") + DEEP),
        answer((1 << 25).to_bytes(8, "little") + b" " * (1 << 25)),
        answer(snapshot()[:-1]),
        answer(snapshot(), length=len(snapshot()) + 1) + b"",
        answer(b"<html>", Content_Type="text/html"),
        answer(gzip.compress(bytes(10_000_000)), Content_Encoding="gzip"),
        answer(snapshot(), Content_Encoding="identity, gzip"),
        answer(snapshot(), Transfer_Encoding="gzip, chunked"),
        answer(snapshot(), "304 Not Modified"),
        answer(b"", "204 No Content"),
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n123456",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        b"HTTP/9.9 9999 \x00\r\n\r\n",
        b"\x00" * 200_000,
        b"\r\n",
    ],
)
def test_a_model_that_is_none_is_an_error_of_ours(said):
    with HostileServer(GET=said) as server, worker(server) as someone:
        with pytest.raises(WorkerError) as failed:
            someone.pull()
        assert str(failed.value).isprintable()


@pytest.mark.parametrize("tag", ["\xff\xfe", '"' + "a" * 5_000 + '"', "\x80", '"a\tb"', "bare"])
def test_a_strange_etag_is_not_sent_back(tag):
    with HostileServer(GET=answer(snapshot(), ETag=tag)) as server, worker(server) as someone:
        someone.pull()
        someone.pull()
        assert all(b"if-none-match" not in head.lower() for head in server.heads)


@pytest.mark.parametrize(
    "date",
    [
        "9" * 5_000,
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "1.2.3",
        "-1",
        "\u0661",
        ",",
        "",
    ],
)
def test_a_strange_retry_after_is_survived(date):
    busy = answer(b"{}", "503 Busy", Retry_After=date.encode("utf-8").decode("latin-1"))
    retry = Retry(tries=2, first_s=0.0, max_s=0.0, max_retry_after_s=0.0)
    server = HostileServer(POST=[busy, ACCEPTED])
    with server, worker(server, connection={"retry": retry}) as someone:
        assert push(someone).version == 1


def test_a_redirect_is_not_followed():
    elsewhere = answer(b"", "307 Temporary Redirect", Location="http://127.0.0.1:9/v1/model")
    leads = pytest.raises(WorkerError, match=r"leads to http://127.0.0.1:9/v1/model: if that is")
    with HostileServer(GET=elsewhere) as server, worker(server) as someone, leads:
        someone.pull()


@pytest.mark.parametrize(
    ("status", "said"),
    [("304 Not Modified", "nothing has changed, which nobody asked"), ("300 Choose", "Choose.$")],
)
def test_a_redirect_to_nowhere_is_told_as_what_it_is(status, said):
    nowhere, told = answer(b"", status), pytest.raises(WorkerError, match=said)
    with HostileServer(GET=nowhere) as server, worker(server) as someone, told:
        someone.pull()


# The token


@pytest.mark.tried(
    "a token that is rotated in its file",
    before="the worker ended with 401",
    now="read again, and the same request is sent with the new one",
)
def test_a_token_is_read_again_when_it_is_refused(tmp_path):
    file = tmp_path / "ann.token"
    file.write_text("ann.old\n")
    with HostileServer() as server:
        old = b"authorization: bearer ann.old"

        def checked(line):
            refused = old in server.heads[-1].lower()
            line.sendall(answer(b"{}", "401 No") if refused else answer(snapshot()))

        server.answers["GET"] = checked
        with Worker(server.url, token=file, connection=Connection(retry=ONCE)) as someone:
            with pytest.raises(WorkerError, match="401"):  # nobody has changed it
                someone.pull()
            for unusable in ("", "bob.new", "ann.old", "\x00"):
                file.write_text(unusable)
                with pytest.raises(WorkerError, match="401"):
                    someone.pull()
            file.write_text("ann.new\n")
            assert someone.pull().version == 0
            assert len(server.heads) == 7


# The log


@pytest.mark.tried(
    "a worker whose loss is NaN",
    before='its log said `"loss": NaN`, which is not JSON',
    now='its log says `"loss": null`',
)
def test_a_loss_that_is_not_finite_is_null_in_the_log(caplog):
    task = FunctionTask(wire_layout(), lambda x: (x + 1, float("nan"), 1))
    caplog.set_level(logging.INFO, "anarchic.worker")
    with HostileServer() as server, worker(server) as someone:
        someone.run(task, WorkPlan(updates=1))
    line = json.loads(caplog.messages[-1], parse_constant=pytest.fail)
    assert (line["event"], line["status"], line["loss"]) == ("push", "accepted", None)
