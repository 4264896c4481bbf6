"""Three servers, one run, one that leads; and what happens when it dies."""

from __future__ import annotations

import hashlib
import signal
import threading
import time
from contextlib import closing
from functools import partial

import pytest

from anarchic.server.check import check
from anarchic.server.records import NewUpdate
from anarchic.server.runs import open_run
from anarchic.server.settings import Address, RunSettings, ServerSettings
from anarchic.server.store import open_store
from anarchic.worker import (
    Connection,
    ConstantSteps,
    Every,
    FunctionTask,
    Retry,
    Worker,
    WorkPlan,
)
from tests import waiting
from tests.chaos.faults import TAKE_OVER_S, Plan, leader, run
from tests.chaos.servers import LAYOUT, ServerProcess, free_port, write_model
from tests.chaos.talk import Line, get_json
from tests.chaos.updates import encoded
from tests.server.postgres import postgres_server

until = partial(waiting.until, timeout_s=10.0)

pytest.importorskip("psycopg")
pytestmark = pytest.mark.slow  # every test starts servers


@pytest.fixture(scope="module")
def database():
    with postgres_server() as server:
        yield server


def test_another_leads_when_the_leader_is_killed(tmp_path, database):
    plan = Plan(kills=5, workers=6, herds=0, replicas=3, calm_s=(0.1, 0.5))
    report = run(plan, tmp_path, database.new_place())
    assert len(report.take_overs_s) == 5
    assert max(report.take_overs_s) < TAKE_OVER_S


@pytest.mark.chaos
def test_twenty_leaders_killed_in_turn(tmp_path, database):
    rule = {"rule": "afa-cs", "options": ("--cap", "12")}
    plan = Plan(kills=20, workers=16, herds=2, replicas=3, calm_s=(0.2, 1.0), **rule)
    report = run(plan, tmp_path, database.new_place())
    assert max(report.take_overs_s) < TAKE_OVER_S


@pytest.fixture
def two(tmp_path, database):
    """Two replicas of a run of which every two updates make a version."""
    store = database.new_place()
    init = write_model(tmp_path / "model.safetensors")
    words = ("--m", "2", "--open-enrolment", "--keep-payloads", "--per-worker", "1")
    servers = [ServerProcess(store, init, tmp_path / f"{n}.log", *words) for n in range(2)]
    try:
        for server in servers:
            server.start()  # at the same moment, on a store without a run
        for server in servers:
            server.await_ready()
        yield servers
    finally:
        for server in servers:
            if server.running:
                server.kill()


def test_an_update_committed_late_by_a_slow_replica_is_folded(two):
    """Its number is lower than those of updates that were folded long before it was committed."""
    slow = open_store(two[0].store, keep_payloads=True)
    inserted, go_on = threading.Event(), threading.Event()
    announce = slow._database.announce

    def slowly(connection):
        inserted.set()
        assert go_on.wait(30)
        announce(connection)

    slow._database.announce = slowly
    sent = encoded(LAYOUT, "late", "1")
    new = NewUpdate(
        "late", "1", hashlib.sha256(sent).digest(), 0, 1, 0.1, 0, 1.0, time.time(), sent
    )
    receipts = []
    thread = threading.Thread(target=lambda: receipts.extend(slow.append([new])))
    thread.start()
    try:
        assert inserted.wait(10)
        with Line(two[1].port) as line:
            for worker in ("ann", "bob"):
                assert line.push(encoded(LAYOUT, worker, "1")).status == 202
        until(lambda: two[0].status()["version"] == 1)
        go_on.set()
        thread.join(10)
        with Line(two[0].port) as line:
            assert line.push(encoded(LAYOUT, "cid", "1", base_version=1)).status == 202
        until(lambda: two[0].status()["version"] == 2)
        trace = {row.worker: row for row in slow.trace()}
        assert [receipt.outcome for receipt in receipts] == ["accepted"]
        assert trace["late"].seq < trace["ann"].seq
        assert trace["late"].version == 2
    finally:
        go_on.set()
        thread.join(10)
        slow.close()


def test_a_worker_has_one_share_however_many_replicas_it_asks(two):
    with Line(two[0].port) as here, Line(two[1].port) as there:
        assert here.push(encoded(LAYOUT, "ann", "1")).status == 202
        until(lambda: two[1].status()["buffered"] == 1)
        assert there.push(encoded(LAYOUT, "ann", "2")).status == 429
        assert there.push(encoded(LAYOUT, "bob", "1")).status == 202
        until(lambda: [server.status()["version"] for server in two] == [1, 1])
        assert there.push(encoded(LAYOUT, "ann", "2")).status == 202


def test_every_replica_has_every_version(two):
    with Line(two[0].port) as here, Line(two[1].port) as there:
        for worker in ("ann", "bob"):
            assert here.push(encoded(LAYOUT, worker, "1")).status == 202
        until(lambda: [server.status()["version"] for server in two] == [1, 1])
        for version in (0, 1):
            path = f"/v1/runs/{two[0].status()['run']}/models/{version}"
            found = [line.get(path) for line in (here, there)]
            assert {answer.status for answer in found} == {200}
            assert found[0].body == found[1].body


def test_a_leader_that_is_told_to_stop_hands_over(two):
    first = leader(two)
    other = next(server for server in two if server is not first)
    began = time.monotonic()
    assert first.stop() == 0
    assert leader([other]) is other
    assert time.monotonic() - began < TAKE_OVER_S + 5


@pytest.mark.tried(
    "PostgreSQL stopped for a while under two replicas",
    before="the one that did not lead afterwards stayed at 503 for ever",
    now="both are well again, whoever leads",
)
def test_replicas_recover_from_an_outage_whoever_leads(two, database):
    def health():
        return [get_json(server.port, "/healthz", timeout_s=5.0)[0] for server in two]

    leader(two)
    assert health() == [200, 200]
    database.stop(signal.SIGQUIT)
    try:
        until(lambda: health() == [503, 503])
    finally:
        database.start()
    waiting.until(lambda: health() == [200, 200], 30.0)
    leader(two)
    for server, worker in zip(two, ("ann", "bob"), strict=True):
        with Line(server.port) as line:
            assert line.push(encoded(LAYOUT, worker, "1")).status == 202
    until(lambda: [server.status()["version"] for server in two] == [1, 1])


def test_workers_go_on_when_one_of_two_replicas_is_killed(two, tmp_path):
    """Whatever was accepted by the one that dies is no second update for the other."""
    urls = [f"http://127.0.0.1:{server.port}" for server in two]
    task = FunctionTask(LAYOUT, lambda x: (x, 0.0, 1))
    plan = WorkPlan(updates=6, steps=ConstantSteps(1), local_lr=0.01, policy=Every(0.1 / 60))
    summaries = {}

    def work(name, servers):
        spool, quick = tmp_path / name, Connection(retry=Retry(tries=None, max_s=0.5))
        with Worker(servers, name=name, spool=spool, connection=quick) as worker:
            summaries[name] = worker.run(task, plan)

    threads = [
        threading.Thread(target=work, args=("ann", urls)),
        threading.Thread(target=work, args=("bob", ",".join(reversed(urls)))),
    ]
    for thread in threads:
        thread.start()
    until(lambda: two[1].status()["version"] >= 1)
    two[0].kill()
    for thread in threads:
        thread.join(60)
    until(lambda: two[1].status()["version"] == 6)  # by now it leads, and has folded all
    assert {name: found.accepted + found.duplicate for name, found in summaries.items()} == {
        "ann": 6,
        "bob": 6,
    }
    store = open_store(two[1].store, keep_payloads=True)
    ids = [row.seq for row in store.trace()]
    store.close()
    assert len(ids) == len(set(ids)) == 12


def test_a_store_in_postgresql_is_looked_at_before_serving(tmp_path, database):
    place, init = database.new_place(), write_model(tmp_path / "model.safetensors")

    def found():
        how = {
            "settings": ServerSettings(open_enrolment=True),
            "address": Address(port=free_port()),
        }
        checks = check(RunSettings(store=place, init=init), **how)
        return {each.check: (each.status, each.message) for each in checks}

    def tables():
        schema = place.partition("%3D")[2]
        return database.sql(f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'")

    assert found()["store"] == ("ok", "The database answers; a run begins in it.")
    assert tables() == "0"
    with closing(open_store(place)) as store:
        open_run(store, {}, init)
    later = found()
    assert {status for status, _ in later.values()} == {"ok"}, later
    assert "at version 0, undamaged" in later["store"][1]
