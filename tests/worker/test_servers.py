"""Several servers of one run: tried in turn, and an update counts once, wherever it is sent."""

from __future__ import annotations

import logging

import httpx
import numpy as np
import pytest

from anarchic.errors import ConfigError, WorkerError
from anarchic.worker import Connection, Retry, Worker, WorkSettings
from anarchic.worker.servers import Servers, server_urls
from tests.worker.faulty import Listening, Scripted, ids

QUICK = Retry(tries=2, first_s=0.0)


@pytest.fixture
def replicas():
    """Two servers of one run, as replicas on one store are: what one takes, both have."""
    shared = Scripted()
    both = [Listening(shared), Listening(shared)]
    yield both
    for one in both:
        one.close()


def connected(urls, **how):
    return Worker(urls, name="ann", connection=Connection(retry=QUICK, timeout_s=5.0), **how)


def push(worker, base=None):
    return worker.push(np.ones(2, np.float32), base_version=base, local_lr=0.1)


@pytest.mark.parametrize("spell", [list, ",".join, ", ".join, tuple])
def test_another_server_is_asked_when_one_cannot_be_reached(replicas, spell, caplog):
    caplog.set_level(logging.INFO, "anarchic.worker")
    urls = [one.url for one in replicas]
    with connected(spell(urls)) as worker:
        replicas[0].close()
        assert push(worker).status == "accepted"
        assert push(worker).status == "accepted"
        assert urls[1] in repr(worker)
    switches = [record for record in caplog.records if '"next_server"' in record.getMessage()]
    assert len(switches) == 1  # it stays with the one that answers
    assert len(replicas[0].scripted.taken) == 2


def test_another_server_is_asked_after_5xx_but_not_where_it_would_say_the_same(replicas):
    with connected([one.url for one in replicas]) as worker:
        worker.pull()
        replicas[0].scripted.faults = [503]
        assert push(worker).status == "accepted"
        assert replicas[1].url in repr(worker)
        for fault in ((429, 0), (503, "paused")):  # a share, and a pause, are those of the run
            replicas[0].scripted.faults = [fault]
            assert push(worker).status == "accepted"
            assert replicas[1].url in repr(worker)


def test_an_update_whose_answer_was_lost_is_a_duplicate_at_the_other(replicas):
    with connected([one.url for one in replicas]) as worker:
        worker.pull()
        replicas[0].scripted.faults = ["lose"]
        assert push(worker).status == "duplicate"
    posts = replicas[0].scripted.posts
    assert len(posts) == 2
    assert len(set(ids(posts))) == len(set(posts)) == 1


def test_a_server_of_another_run_gets_no_update(replicas, tmp_path):
    other = Listening(Scripted(run="run-b"))
    with connected([replicas[0].url, other.url], spool=tmp_path) as worker:
        worker.pull()
        replicas[0].scripted.faults = [503]
        with pytest.raises(WorkerError, match=r"has run run-b, but .* has run run-a") as refused:
            push(worker)
        assert refused.value.code == "other_run"
        assert other.scripted.posts == []
        assert len(worker.spool.waiting()) == 1  # for the next start
    with connected([other.url, replicas[0].url], spool=tmp_path) as worker:
        with pytest.raises(WorkerError, match="An update of run run-a waits in"):
            worker.send_spooled()
        assert len(worker.spool.waiting()) == 1
    with connected(replicas[0].url, spool=tmp_path) as worker:
        assert worker.send_spooled() == {"accepted": 1}
    other.close()


def test_a_server_of_another_run_is_refused_when_it_is_pulled_from(replicas):
    other = Listening(Scripted(run="run-b"))
    with connected([replicas[0].url, other.url]) as worker:
        worker.pull()
        replicas[0].scripted.pull_faults = [httpx.Response(502)]
        with pytest.raises(WorkerError, match="replicas of one run"):
            worker.pull()
    other.close()


def test_a_new_run_at_the_same_address_is_no_other_server():
    servers = Servers(["http://a", "http://b"])
    servers.confirm("run-a")
    servers.confirm("run-b")
    servers.next()
    assert not servers.confirmed
    with pytest.raises(WorkerError):
        servers.confirm("run-a")


def test_when_all_are_away_they_are_named_together():
    urls = ["http://127.0.0.1:9", "http://127.0.0.1:10/prefix"]
    with connected(urls) as worker, pytest.raises(WorkerError) as failed:
        worker.pull()
    told = "GET http://127.0.0.1:9/v1/model or http://127.0.0.1:10/prefix/v1/model failed 2 times"
    assert told in str(failed.value)


def test_addresses_are_checked_one_by_one():
    assert server_urls(["http://a,http://b", "http://c"]) == ["http://a", "http://b", "http://c"]
    assert len(Servers("http://a,http://a").all) == 1
    for wrong in ("", "http://a,ftp://b", ["http://a", "b"], [3], []):
        with pytest.raises(ConfigError):
            Servers(wrong)


def test_the_first_address_names_the_spool():
    alone = WorkSettings(server="http://a")
    assert WorkSettings(server=["http://a,http://b"]).first_server == alone.first_server
    with pytest.raises(ConfigError, match="server must be a text or a list of texts, got 3"):
        WorkSettings(server=3)
