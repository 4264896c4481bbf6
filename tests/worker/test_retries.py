"""A request that failed is made again: when, how often, and with which bytes."""

import gzip
import random
from dataclasses import replace
from itertools import repeat

import httpx
import pytest

from anarchic.errors import ConfigError, WorkerError
from anarchic.worker import Retry, exchange
from tests.worker.faulty import TestClock
from tests.worker.pushing import push


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 507])
def test_a_push_is_sent_again_with_the_same_bytes(server, status):
    server.faults = [status, "refused connection", status]
    assert push(server.worker()).status == "accepted"
    assert len(server.posts) == 4
    assert len(set(server.posts)) == 1
    assert len(server.taken) == 1


def test_an_update_whose_answer_was_lost_counts_once(server):
    server.faults = ["lose", "lose"]
    assert push(server.worker()).status == "duplicate"
    assert server.state.version == 1


def test_a_2xx_answer_of_another_server_is_retried(server):
    """Such as the page of a hotel's network, which answers everything with 200."""
    server.faults = [httpx.Response(200, html="<p>Log in</p>"), httpx.Response(202, json=[])]
    assert push(server.worker()).status == "accepted"


def test_waits_grow_with_full_jitter():
    retry, rng = Retry(first_s=1.0, factor=2.0, max_s=10.0), random.Random(1)
    waits = [[retry.wait_s(n, 0.0, rng) for _ in range(2000)] for n in range(6)]
    for drawn, widest in zip(waits, [1, 2, 4, 8, 10, 10], strict=True):
        assert 0 <= min(drawn) < 0.05 * widest
        assert 0.95 * widest < max(drawn) <= widest
    assert 0 <= retry.wait_s(10_000, 0.0, rng) <= 10


def test_retry_after_is_honoured(server):
    clock = TestClock()
    server.faults = [(429, 7), (503, 2.5)]
    assert push(server.worker(clock=clock)).status == "accepted"
    assert 7 <= clock.naps[0] <= 7.5
    assert 2.5 <= clock.naps[1] <= 3.5


def test_a_worker_that_waits_for_a_step_sends_again_once_there_is_a_new_version(server):
    clock, full = TestClock(), too_many(retry_after_s=30)
    worker = server.worker(clock=clock)
    worker.pull()
    server.faults = [full]

    def step():
        if clock.time_s > 0.1:
            server.state = replace(server.state, version=1)

    clock.on_sleep = step
    assert push(worker).status == "accepted"
    assert clock.naps == [0.02, 0.04, 0.08]
    assert len(server.posts) == 2
    assert server.pulls == [None, *['"run-a-0"'] * 3]


def test_without_a_new_version_it_waits_as_long_as_it_is_told(server):
    clock = TestClock()
    worker = server.worker(clock=clock)
    worker.pull()
    server.faults, server.pull_faults = [too_many(retry_after_s=30)], [None, httpx.Response(403)]
    assert push(worker).status == "accepted"
    assert 30 <= sum(clock.naps) <= 30.5
    assert len(server.pulls) <= 12  # it looks less and less often


def too_many(retry_after_s):
    told = {"error": "too_many_updates", "message": "Full.", "remedy": "Wait."}
    return httpx.Response(429, json=told, headers={"Retry-After": str(retry_after_s)})


def test_retry_after_may_be_a_date_and_is_bounded(server):
    clock = TestClock(now_s=784111777.0)  # Sun, 06 Nov 1994 08:49:37 GMT
    server.faults = [(503, "Sun, 06 Nov 1994 08:49:57 GMT"), (503, 10**9), (503, "soon GMT")]
    push(server.worker(clock=clock))
    assert 20 <= clock.naps[0] <= 20.5
    assert 3600 <= clock.naps[1] <= 3601
    assert clock.naps[2] <= 2


def test_a_push_gives_up_after_its_tries(server):
    clock = TestClock()
    server.faults = [503] * 9
    with pytest.raises(WorkerError, match="failed 3 times") as caught:
        push(server.worker(retry=Retry(tries=3), clock=clock))
    assert caught.value.code == "http_503"
    assert (len(server.posts), len(clock.naps)) == (3, 2)


@pytest.mark.parametrize("slow", [408, (408, "too_slow")])
def test_a_line_that_is_always_too_slow_is_told_the_remedy(server, caplog, slow):
    server.faults = [slow, slow, 503, slow, slow]
    assert push(server.worker()).status == "accepted"
    assert "--least-rate" not in caplog.text  # bad luck
    server.faults = [slow] * 5
    assert push(server.worker()).status == "accepted"
    assert caplog.text.count("--least-rate") == 1
    server.faults = [slow] * 3
    with pytest.raises(WorkerError, match=r"dtype F16 .* lower --least-rate"):
        push(server.worker(retry=Retry(tries=3)))


@pytest.mark.parametrize("wrong", [{"tries": 0}, {"first_s": 99}, {"factor": 0.5}])
def test_impossible_retries_are_refused(wrong):
    with pytest.raises(ConfigError, match="Retry needs"):
        Retry(**wrong)


class Stream(httpx.SyncByteStream):
    """An answer's body as it comes."""

    def __init__(self, pieces):
        self.pieces, self.read = pieces, 0

    def __iter__(self):
        for piece in self.pieces:
            self.read += 1
            yield piece


@pytest.mark.parametrize("packing", ["gzip", "deflate, gzip", "br"])
def test_a_compressed_answer_is_refused(server, packing):
    """A few bytes could become more than the worker's memory."""
    packed = Stream([gzip.compress(bytes(1_000_000))])
    server.pull_faults = [httpx.Response(200, stream=packed, headers={"Content-Encoding": packing})]
    with pytest.raises(WorkerError, match="packed") as caught:
        server.worker(retry=Retry(tries=1)).pull()
    assert (caught.value.code, packed.read) == ("garbled", 0)


def test_an_endless_answer_is_not_read_whole(server, monkeypatch):
    monkeypatch.setattr(exchange, "MAX_ANSWER", 1_000)
    endless = Stream(repeat(b"x" * 100))
    server.pull_faults = [httpx.Response(200, stream=endless)]
    with pytest.raises(WorkerError, match="more than 1000 bytes"):
        server.worker(retry=Retry(tries=1)).pull()
    assert endless.read == 11
    assert server.worker().pull().version == 0  # a model of fewer
