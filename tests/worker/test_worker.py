"""What a ``Worker`` pulls, pushes, refuses and keeps secret."""

import logging
import math

import httpx
import numpy as np
import pytest

from anarchic import Update, wire
from anarchic.errors import ConfigError, WorkerError
from anarchic.worker import Answer, Connection, Retry, Worker, read_token
from tests.worker.faulty import LAYOUT, Scripted, TestClock, ids
from tests.worker.pushing import ONES, push

# Pulling


def test_pull_gives_the_model_and_its_version(server):
    worker = server.worker()
    snapshot = worker.pull()
    assert (snapshot.version, snapshot.params.tolist()) == (0, [0.0, 0.0])
    assert (worker.layout, worker.run_id) == (LAYOUT, "run-a")
    with pytest.raises(ValueError, match="read-only"):
        snapshot.params[0] = 1


def test_a_worker_of_one_of_several_runs_names_it_in_every_path(server):
    asked = []

    def answer(request):
        asked.append((request.method, request.url.path))
        own = request.url.path.replace("/runs/mnist", "")
        return server(httpx.Request(request.method, f"http://server{own}",
                      headers=request.headers, content=request.content))  # fmt: skip

    connection = Connection(transport=httpx.MockTransport(answer))
    with Worker("http://server", run="mnist", name="ann", connection=connection) as worker:
        worker.pull()
        push(worker)
    assert asked == [("GET", "/v1/runs/mnist/model"), ("POST", "/v1/runs/mnist/updates")]
    with pytest.raises(ConfigError, match="A run's name"):
        Worker("http://server", run="../other", name="ann")


def test_an_unchanged_model_is_not_sent_again(server):
    worker = server.worker()
    first = worker.pull()
    assert worker.pull() is first
    assert server.pulls == [None, '"run-a-0"']
    push(worker)
    assert worker.pull().params.tolist() == [-0.5, -0.5]  # 0 - 1 * 0.5 * 1


def test_a_damaged_model_is_pulled_again(server):
    whole = server(httpx.Request("GET", "http://server/v1/model")).content
    server.pull_faults = [httpx.Response(200, content=whole[:-3]), httpx.Response(200, text="Hi!")]
    assert server.worker().pull().version == 0


@pytest.mark.parametrize(("worked_s", "waits_s"), [(2.0, 0.2), (3600.0, 1.0)])
def test_a_pull_waits_a_moment_for_the_own_update(worked_s, waits_s):
    server, clock = Scripted(m=2), TestClock()
    worker, other = server.worker(clock=clock), server.worker(name="bob")
    worker.pull()
    clock.time_s += worked_s
    push(worker)  # no step yet
    assert worker.pull().version == 0
    assert not clock.naps
    assert worker.pull(own=True).version == 0
    assert sum(clock.naps) == pytest.approx(waits_s, abs=0.03)
    clock.on_sleep = lambda: push(other)
    assert worker.pull(own=True).version == 1  # as soon as it is there


# Pushing


def test_push_sends_what_was_given(server):
    worker = server.worker()
    answer = push(worker, samples=7, loss=0.25)
    assert answer == Answer("accepted", 1, 0)
    assert server.state.params.tolist() == [-0.5, -0.5]
    assert list(server.taken) == [("ann", ids(server.posts)[0])]


def test_push_names_the_epoch_of_what_was_pulled(server):
    """So that a server which was restored from a backup knows an update from what was lost."""

    def sent():
        return wire.decode_update(server.posts[-1], LAYOUT, worker="ann").epoch

    worker = server.worker()
    push(worker)
    assert sent() is None  # an older server
    server.epoch = "2-abc"
    assert worker.pull().version == 1
    push(worker)
    assert sent() == "2-abc"
    push(worker, base_version=0)  # of which it does not know the epoch
    assert sent() is None


def test_an_update_keeps_its_epoch_though_what_is_spooled_is_sent_before_it(tmp_path, server):
    server.epoch = "2-abc"
    worker = server.worker(spool=tmp_path)
    worker.pull()
    worker.spool.put(worker.encode(Update("ann", 0, 1, 0.5, ONES, id="waits")))
    server.epoch = "3-def"  # restored: before what is spooled is sent, the model is pulled
    worker._pulled = ("", *worker._pulled[1:])
    push(worker)
    epochs = [wire.decode_update(b, LAYOUT, worker="ann").epoch for b in server.posts]
    assert epochs == ["2-abc", "2-abc"]


def test_push_takes_an_update_with_its_own_id(server):
    update = Update("ann", 0, 3, 0.1, ONES, id="mine")
    assert server.worker().push(update).status == "accepted"
    assert server.worker().push(update).status == "duplicate"
    assert list(server.taken) == [("ann", "mine")]


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_narrow_directions_arrive(server, dtype):
    push(server.worker(dtype=dtype))
    assert server.state.params.tolist() == [-0.5, -0.5]
    assert len(server.posts[0]) % 8 == 4  # two numbers of two bytes


def test_a_rate_is_needed(server):
    with pytest.raises(ConfigError, match="local_lr > 0"):
        server.worker().push(ONES)


def test_without_a_name_nothing_is_pushed(server):
    with pytest.raises(ConfigError, match="token, or a name"):
        push(server.worker(name=None))


def test_pushing_an_update_that_is_not_finite_raises(server):
    server.faults = [(422, "not_finite")]
    with pytest.raises(WorkerError) as caught:
        push(server.worker(), direction=np.array([math.nan, 0], np.float32))
    assert caught.value.code == "not_finite"


# Refusals


@pytest.mark.parametrize(
    "fault",
    [
        (409, "stale"),
        (409, "conflict"),
        (422, "malformed"),
        (422, "not_finite"),
        (413, "too_large"),
    ],
)
def test_a_final_refusal_is_not_sent_again(server, fault, tmp_path):
    server.faults = [fault]
    worker = server.worker(spool=tmp_path)
    with pytest.raises(WorkerError, match="Do otherwise") as caught:
        push(worker)
    assert caught.value.code == fault[1]
    assert len(server.posts) == 1
    assert worker.spool.waiting() == []


@pytest.mark.parametrize(
    "fault",
    [
        (401, "unauthorized"),
        (403, "revoked"),
        (411, "length_required"),
        404,
        *(httpx.Response(code, html="<h1>nginx</h1>") for code in (400, 409, 411, 413, 422)),
        httpx.Response(413, json={"message": "Request Too Long"}),
        httpx.Response(413, json={"error": "limit", "message": "Request Too Long"}),
    ],
)
def test_other_errors_leave_the_update_in_the_spool(server, fault, tmp_path):
    server.faults = [fault]
    worker = server.worker(spool=tmp_path)
    with pytest.raises(WorkerError):
        push(worker)
    assert len(server.posts) == 1
    assert len(worker.spool.waiting()) == 1
    push(worker)  # the older one first
    assert len(server.taken) == 2
    assert ids(server.posts)[0] == ids(server.posts)[1] == next(iter(server.taken))[1]


# Secrets


def test_the_token_names_the_worker(server, tmp_path):
    file = tmp_path / "token"
    file.write_text("bob.s3cret-s3cret\n")
    worker = server.worker(name=None, token=read_token(file))
    with Worker("http://127.0.0.1:1", token_file=str(file)) as other:
        assert other.name == worker.name
    with pytest.raises(ConfigError, match="token or token_file, not both"):
        Worker("http://127.0.0.1:1", token="ann.secret", token_file=file)
    with pytest.raises(ConfigError, match=r"token file nope cannot be read \(No such file"):
        Worker("http://127.0.0.1:1", token_file="nope")
    worker.pull()
    assert (worker.name, server.authorizations) == ("bob", ["Bearer bob.s3cret-s3cret"])


def test_a_token_is_never_shown(server, caplog):
    caplog.set_level(logging.DEBUG)
    worker = server.worker(name=None, token="bob.s3cret-s3cret", retry=Retry(tries=2))
    server.faults = [(401, "unauthorized"), 500, 500]
    shown = [
        repr(worker),
        str(vars(worker)),
        repr(Connection(proxy="http://me:s3cret@proxy")),
        repr(worker._channel._http.auth),
    ]
    for _ in range(2):
        with pytest.raises(WorkerError) as caught:
            push(worker)
        shown += [str(caught.value), repr(caught.value)]
    assert "s3cret" not in "".join(shown) + caplog.text
    assert "retry" in caplog.text


@pytest.mark.parametrize("token", ["", "nodot", "a b.c", "ann.x\nInjected: 1", "ann.é"])
def test_a_malformed_token_is_refused_without_being_shown(token):
    with pytest.raises(ConfigError, match=r"NAME.SECRET") as caught:
        Worker("http://server", token=token)
    assert not token or token not in str(caught.value)


def test_a_token_over_plain_http_is_warned_about(caplog):
    Worker("http://example.org", token="bob.secret").close()
    assert "token_in_clear" in caplog.text
    caplog.clear()
    Worker("http://127.0.0.1:1", token="bob.secret").close()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "ftp://server"}, "begins with http"),
        ({"url": "http://ann:secret@server"}, "holds a password"),
        ({"url": "http://[:::1]"}, "not a URL"),
        ({"name": "a/b"}, "name has 1 to 64"),
        ({"token": "bob.s", "name": "ann"}, "that of 'bob'"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Worker(**{"url": "http://server", **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "I8"}, "no dtype 'I8'"),
        ({"client_key": "key.pem"}, "without its certificate"),
        ({"ca_file": "missing.pem"}, r"missing.pem \(--ca-file\) cannot be used"),
        ({"proxy": "nonsense"}, "proxy's URL begins"),
    ],
)
def test_wrong_connections_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Worker("http://server", connection=Connection(**settings))


# Real sockets


def test_cut_connections_are_survived(listening):
    scripted = listening.scripted
    scripted.faults = ["cut_body", "cut", 503]
    with Worker(
        listening.url, name="ann", clock=TestClock(), connection=Connection(timeout_s=5)
    ) as worker:
        assert push(worker).status == "duplicate"
        assert push(worker).status == "accepted"
    assert len(scripted.taken) == 2
    assert scripted.state.version == 2


def test_a_silent_server_is_given_up_after_the_timeout(listening):
    listening.scripted.faults = ["hang"]
    impatient = Connection(retry=Retry(tries=1), timeout_s=0.3)
    with Worker(listening.url, name="ann", clock=TestClock(), connection=impatient) as worker:
        # The connection's own clock and that of the whole answer run out together.
        with pytest.raises(WorkerError, match=r"ReadTimeout|no whole answer after 0\.") as caught:
            push(worker)
        assert caught.value.code == "unreachable"


def test_a_proxy_is_used(listening):
    """A plain proxy is asked for the whole URL."""
    connection = Connection(proxy=listening.url, retry=Retry(tries=1))
    with Worker("http://far.example", name="ann", connection=connection) as worker:
        listening.url = ""  # the path that the proxy sees is the URL
        assert worker.pull().version == 0
