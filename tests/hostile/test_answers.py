"""Answers that no honest server gives, to the worker of the SDK and to ``anarchic work``."""

import gc
import gzip
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

from anarchic import wire
from anarchic.errors import AnarchicError, WorkerError
from anarchic.worker import Connection, Retry, Spool, Worker, WorkPlan, exchange
from anarchic.worker.settings import default_spool
from anarchic.worker.task import FunctionTask
from tests.hostile.answers import ACCEPTED, HostileServer, answer, snapshot
from tests.waiting import until

ONES = np.ones(2, np.float32)
DIGITS = {"bias": [10], "weight": [10, 64]}  # the model of --task digits:1/8
ONCE = Retry(tries=1)
DEEP = b"[" * 100_000


def worker(server, **settings):
    chosen = {"timeout_s": 1.0, "retry": ONCE, **settings.pop("connection", {})}
    return Worker(server.url, name="ann", connection=Connection(**chosen), **settings)


def push(someone):
    return someone.push(ONES, local_steps=1, local_lr=0.1)


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


def wire_layout():
    return wire.decode_snapshot(snapshot())[0]


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


# How an answer comes


def slow_answers(server):
    begun = answer(snapshot(), length=10**9)
    return {
        "head": lambda line: server.trickle(line, b"HTTP/1.1 200 OK\r\nX: "),
        "body": lambda line: server.trickle(line, begun),
        "chunks": lambda line: server.trickle(
            line, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"
        ),
        "1xx": lambda line: server.flood(line, b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 99),
        "early": lambda line: server.trickle(line, b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    }


@pytest.mark.tried(
    "an answer that comes byte by byte, or after endless 1xx answers",
    before="waited for as long as bytes came",
    now="given up after timeout_s, plus the time of its bytes at the least rate",
)
@pytest.mark.parametrize("kind", ["head", "body", "chunks", "1xx", "early"])
def test_a_whole_answer_has_a_deadline(kind):
    with HostileServer() as server:
        server.answers["GET"] = slow_answers(server)[kind]
        with worker(server, connection={"timeout_s": 0.5}) as someone:
            begun = time.monotonic()
            with pytest.raises(WorkerError, match=r"no whole answer after 0\.[5-9]"):
                someone.pull()
            assert time.monotonic() - begun < 5
            until(lambda: not requests_on_their_way(), 5)


def requests_on_their_way():
    return [t for t in threading.enumerate() if t.name == "anarchic-request"]


def test_an_upload_that_is_not_read_has_a_deadline():
    with HostileServer() as server:
        tensors = {"x": [1 << 22]}
        server.answers["GET"] = answer(snapshot(tensors), Connection="close")
        with worker(server) as someone:
            someone.pull()
            server._head = lambda line: server.over.wait(30) and b""
            someone._channel._connection = Connection(timeout_s=0.5, least_rate=1e9)
            with pytest.raises(WorkerError):
                someone.push(np.ones(1 << 22, np.float32), local_steps=1, local_lr=0.1)


def test_a_line_that_is_slow_but_alive_is_waited_for():
    body = snapshot({"x": [50_000]})
    with HostileServer() as server:

        def steadily(line):
            line.sendall(answer(b"", length=len(body)))
            for start in range(0, len(body), 20_000):
                line.sendall(body[start : start + 20_000])
                time.sleep(0.1)

        server.answers["GET"] = steadily
        with worker(server, connection={"timeout_s": 0.3}) as someone:
            assert someone.pull().params.size == 50_000  # after a second


def test_a_model_that_is_announced_as_too_large_is_not_read():
    def announce(line):
        line.sendall(answer(b"", length=10**12))
        line.recv(1)  # until the worker hangs up

    too_long = pytest.raises(WorkerError, match="more than 1073741824 bytes")
    with HostileServer(GET=announce) as server, worker(server) as someone, too_long:
        someone.pull()


def test_an_answer_without_end_is_not_read_whole():
    with HostileServer() as server:
        server.answers["POST"] = lambda line: server.flood(
            line, answer(b"", "500 Oh", length=10**12), b"x" * 65536
        )
        with worker(server) as someone:
            someone.pull()
            tracemalloc.start()
            with pytest.raises(WorkerError, match="HTTP 500 Oh"):
                push(someone)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 2_000_000


@pytest.mark.tried(
    "a model without a length that goes on for ever, asked for again and again",
    before="2.2 GB of memory: the first answer was still held while the second came",
    now="the documented 1 GiB, and an eighth to spare: only one answer is held",
)
@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\n\r\n", answer(b"", length=9 << 20)],
    ids=["endless", "cut"],
)
def test_only_one_failed_answer_is_in_memory(head, monkeypatch):
    """Without a length it is too long; with one it is cut before it has come as a whole."""
    most = 8 << 20
    monkeypatch.setattr(exchange, "MAX_ANSWER", most if b"Length" not in head else 2 * most)

    def send(line):
        line.sendall(head)
        for _ in range(most >> 16):
            line.sendall(bytes(1 << 16))
        if b"Length" not in head:
            server.flood(line, b"", bytes(65536))

    retry = Retry(tries=3, first_s=0.01, max_s=0.01)
    with HostileServer(GET=send) as server, worker(server, connection={"retry": retry}) as someone:
        gc.disable()
        tracemalloc.start()
        try:
            with pytest.raises(WorkerError, match="failed 3 times"):
                someone.pull()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            gc.enable()
    assert peak < 1.5 * most


@pytest.mark.parametrize("kind", ["head", "body", "silence"])
def test_a_stop_is_noticed_whatever_the_network_does(kind, tmp_path):
    with HostileServer() as server:
        slow = {**slow_answers(server), "silence": lambda line: server.over.wait(30)}
        server.answers["POST"] = slow[kind]
        task = FunctionTask(wire_layout(), lambda x: (x + 1, 0.0, 1))
        patient = {"timeout_s": 60.0, "stop_s": 0.2}
        with worker(server, spool=tmp_path / "spool", connection=patient) as someone:
            ended = []
            running = threading.Thread(target=lambda: ended.append(someone.run(task)))
            running.start()
            until(lambda: any(head.startswith(b"POST") for head in server.heads), 10)
            someone.stop()
            running.join(5)
            assert ended[0].spooled == 1
            until(lambda: not requests_on_their_way(), 5)


def test_a_stop_is_noticed_while_a_name_is_looked_up(monkeypatch):
    found = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found.wait(30))
    patient = Connection(timeout_s=60.0, stop_s=0.2)
    task = FunctionTask(wire_layout(), lambda x: (x, 0.0, 1))
    with Worker("http://example.org", name="ann", connection=patient) as someone:
        running = threading.Thread(target=someone.run, args=(task,))
        running.start()
        until(requests_on_their_way, 5)
        someone.stop()
        running.join(5)
        assert not running.is_alive()
    found.set()
    until(lambda: not requests_on_their_way(), 5)


# What an answer costs


@pytest.mark.tried(
    "a model of BF16 numbers",
    before="a pull took 5.0 times the bytes of the answer",
    now="the answer, its numbers as float32, and a piece of 1 MB",
)
@pytest.mark.parametrize(("dtype", "times"), [("BF16", 3.0), ("F32", 2.0), ("F64", 2.0)])
def test_a_pull_takes_the_answer_and_its_numbers(dtype, times):
    body = snapshot({"a": [1 << 21], "b": [1 << 20, 2]}, dtype=dtype)
    with HostileServer(GET=answer(body)) as server, worker(server) as someone:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        assert someone.pull().params.size == 1 << 22
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        # A bytearray that grows has an eighth of its size to spare.
        assert peak < (times + 0.15) * len(body) + 3_000_000


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_a_model_file_takes_the_file_and_its_numbers(dtype, tmp_path):
    body = snapshot({"a": [1 << 22]}, dtype=dtype)
    (tmp_path / "model").write_bytes(body)
    tracemalloc.start()
    assert wire.load_model(tmp_path / "model")[1].size == 1 << 22
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < {"BF16": 3.0, "F32": 2.0}[dtype] * len(body) + 3_000_000


def test_narrow_tensors_beside_a_double_do_not_multiply():
    mixed = snapshot({"none": [0], "b": [4]}, dtype="BF16").replace(b'"BF16"', b'"F64"', 1)
    mixed = (int.from_bytes(mixed[:8], "little") - 1).to_bytes(8, "little") + mixed[8:]
    one = pytest.raises(WorkerError, match="BF16 and F64, those of a snapshot have one")
    with HostileServer(GET=answer(mixed)) as server, worker(server) as someone, one:
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


# The spool


def test_a_spools_name_does_not_depend_on_how_the_address_is_written(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    spool = default_spool("http://example.org", "ann")
    assert spool == tmp_path / "anarchic/spool/http%3A%2F%2Fexample.org/ann"  # as it always was
    for same in ("http://example.org/", "HTTP://Example.ORG:80", "http://example.org:80//"):
        assert default_spool(same, "ann") == spool
    for other in ("https://example.org", "http://example.org:8780", "http://example.org/b"):
        assert default_spool(other, "ann") != spool


def hostile_file(path, kind):
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "huge":
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    elif kind == "state":  # a good file, but of another kind
        wire.write(path, {"x": ONES}, {"run": "run-a"})
    else:
        path.write_bytes({"empty": b"", "text": b"x" * 99, "deep": DEEP}[kind])


KINDS = ["fifo", "directory", "device", "loop", "huge", "socket", "state", "empty", "text", "deep"]


@pytest.mark.tried(
    "a pipe, a directory, a device, a symlink loop or a file of 1 TiB in the spool",
    before="a pipe kept the worker waiting for ever",
    now="set aside, and the other updates are sent",
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_update_in_the_spool_is_set_aside(kind, tmp_path):
    spool = tmp_path / "spool"
    spool.mkdir()
    hostile_file(spool / "000000000000.update", kind)
    hostile_file(spool / "kept", kind)
    hostile_file(spool / "000000000009.update.part", "directory")
    task = FunctionTask(wire_layout(), lambda x: (x + 1, 0.0, 1))
    with HostileServer() as server, worker(server, spool=spool) as someone:
        summary = someone.run(task, WorkPlan(updates=1))
        assert (summary.accepted, summary.resent) == (1, {"damaged": 1})
        assert someone.local_state() == {}
        assert someone.spool.waiting() == []


def test_a_file_that_cannot_be_moved_away_does_not_keep_the_others(tmp_path, caplog):
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "damaged").write_text("in the way")
    os.mkfifo(spool / "000000000000.update")
    caplog.set_level(logging.WARNING, "anarchic.worker")
    with HostileServer() as server, worker(server, spool=Spool(spool)) as someone:
        assert push(someone).version == 1
    assert "it cannot be moved away" in caplog.text


# The real thing


def start_work(server, folder, *more):
    command = [sys.executable, "-m", "anarchic", "work", "--server", server.url, "--name", "ann"]
    command += ["--task", "digits:1/8", "--spool", str(folder / "spool"), *more]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **pipes)


@pytest.mark.slow
@pytest.mark.tried(
    "SIGTERM to a worker whose answer comes one byte per second",
    before="ignored for 8 s and longer",
    now="the worker has left the update in its spool and ended within two seconds",
)
def test_a_worker_process_stops_while_an_answer_trickles(tmp_path):
    with HostileServer(GET=answer(snapshot(DIGITS))) as server:
        server.answers["POST"] = lambda line: server.trickle(
            line, b"HTTP/1.1 202 Accepted\r\nX: ", every_s=0.5
        )
        process = start_work(server, tmp_path)
        until(lambda: any(head.startswith(b"POST") for head in server.heads), 60)
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        out, log = process.communicate(timeout=30)
        assert time.monotonic() - begun < 4
        assert process.returncode == 0, log
        assert "1 left in the spool" in out


@pytest.mark.slow
def test_a_worker_process_prints_no_escapes(tmp_path):
    refusal = json.dumps({"error": "revoked", "message": "\x1b[31mNo\x1b[0m", "remedy": "\x07"})
    with HostileServer(GET=answer(refusal.encode(), "403 No")) as server:
        process = start_work(server, tmp_path)
        out, log = process.communicate(timeout=60)
        assert process.returncode == 1
        assert not {"\x1b", "\x07"} & set(out + log)
        assert log.splitlines()[-1].startswith("Error: GET http://127.0.0.1")


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
