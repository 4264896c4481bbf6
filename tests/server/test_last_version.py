"""A run that was given a last version ends exactly with it, whatever waits."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import closing, suppress
from functools import partial

import pytest

from anarchic.errors import StoreUnavailable
from anarchic.server.commands import commands, condition
from anarchic.server.fold import Folding
from anarchic.server.operate import steer
from anarchic.server.records import SET_ASIDE
from anarchic.server.replay import replay
from anarchic.server.store import open_store
from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line, Unreachable
from tests.chaos.updates import encoded
from tests.server.live import serving, until
from tests.server.make import body
from tests.waiting import until as wait_until

LAST = 4
MANY = {"per_worker": 1000, "burst": 1000}
run_of = partial(serving, max_versions=LAST, rules={"m": 1}, limits=MANY)


async def push(client, count, name="ann"):
    """So many updates at once; the codes of the answers."""
    sent = (client.post("/v1/updates", content=body(name, f"{n}", seed=n)) for n in range(count))
    answers = await asyncio.gather(*sent)
    return [a.json().get("error", "accepted") for a in answers]


def check_ended(path, accepted, last=LAST):
    """The run stands at its last version; every accepted update is in it, or was set aside."""
    with closing(open_store(path)) as store:
        assert store.run().version == last
        found = replay(store)
        assert (found.version, found.updates, found.equal) == (last, last, True)
        assert store.waiting() == []
        versions = [row.version for row in store.trace()]
        assert len(versions) == accepted
        assert versions.count(SET_ASIDE) == accepted - last
        [end] = commands(store)
        assert (end.kind, end.outcome, end.version) == ("end", "applied", last)
        assert end.issued_by == "server"
        assert f"Version {last} is the last of --max-versions {last}." in end.reason
        assert condition(commands(store)) == "ended"


def test_a_run_ends_exactly_with_its_last_version(tmp_path, monkeypatch):
    fold = Folding.fold

    def slow(self, seq, decoded):
        time.sleep(0.02)  # so that more is accepted than it takes
        return fold(self, seq, decoded)

    monkeypatch.setattr(Folding, "fold", slow)

    async def scenario():
        async with run_of(tmp_path / "run.db") as (service, client):
            codes = await push(client, 60)
            await until(lambda: service.published.newest.version == LAST)
            assert service.steering.ended  # before anybody saw the last version
            late = await client.post("/v1/updates", content=body("ann", "late", base_version=LAST))
            assert (late.status_code, late.json()["error"]) == (410, "run_ended")
            assert (await client.get("/v1/model")).headers["x-anarchic-version"] == str(LAST)
            await until(lambda: not service.store.waiting())
            assert set(codes) <= {"accepted", "run_ended"}
            return codes.count("accepted")

    accepted = asyncio.run(scenario())
    assert accepted > LAST
    check_ended(tmp_path / "run.db", accepted)


def test_what_waits_when_it_starts_again_makes_no_other_version(tmp_path, monkeypatch):
    """Killed right after the last version was durable, and started without the option."""
    path = tmp_path / "run.db"

    async def scenario(**options):
        async with serving(path, rules={"m": 1}, limits=MANY, **options) as (service, client):
            accepted = (await push(client, 20)).count("accepted")
            await until(lambda: service.published.newest.version == LAST)
            return accepted

    with monkeypatch.context() as patched:
        patched.setattr("anarchic.server.fold.Folding.pass_over", lambda *_: None)
        accepted = asyncio.run(scenario(max_versions=LAST))
    with closing(open_store(path)) as store:
        waited = len(store.waiting())
        assert waited == accepted - LAST

    async def again():
        async with serving(path, limits=MANY) as (service, client):
            await until(lambda: not service.store.waiting())
            assert await push(client, 1, "bob") == ["run_ended"]

    asyncio.run(again())
    check_ended(path, accepted)


@pytest.mark.slow
def test_the_version_and_the_end_are_durable_together(tmp_path, monkeypatch):
    """While the end cannot be written, nor is the version; both come with a later attempt."""
    path, failed = tmp_path / "run.db", []

    def fails_twice(*given, **named):
        if len(failed) < 2:
            failed.append(given)
            raise StoreUnavailable("The disk sleeps.")
        return mark(*given, **named)

    from anarchic.server.commands import mark

    monkeypatch.setattr("anarchic.server.commands.mark", fails_twice)

    async def scenario():
        async with run_of(path) as (service, client):
            codes = await push(client, LAST)
            await until(lambda: len(failed) == 1)
            assert service.published.newest.version < LAST
            assert service.store.run().version < LAST
            await until(lambda: service.published.newest.version == LAST)
            assert service.steering.ended
            return codes.count("accepted")

    check_ended(path, asyncio.run(scenario()))


def test_a_run_that_is_there_already_ends_where_it_stands(tmp_path):
    path = tmp_path / "run.db"

    async def scenario(count, **options):
        async with serving(path, rules={"m": 1}, limits=MANY, **options) as (service, client):
            for number in range(count):
                sent = body("ann", f"{number}", base_version=number, seed=number)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await until(lambda: service.published.newest.version == number + 1)  # noqa: B023
            await until(lambda: service.steering.ended or not options)

    asyncio.run(scenario(6))
    asyncio.run(scenario(0, max_versions=LAST))
    with closing(open_store(path)) as store:
        assert (store.run().version, replay(store).equal) == (6, True)
        [end] = commands(store)
        assert (end.kind, end.version) == ("end", 6)


@pytest.mark.slow
def test_a_rollback_may_make_the_last_version(tmp_path):
    path = tmp_path / "run.db"

    async def scenario():
        async with serving(path, rules={"m": 1}, limits=MANY, max_versions=3) as (service, client):
            for number in range(2):
                sent = body("ann", f"{number}", base_version=number, seed=number)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await until(lambda: service.published.newest.version == number + 1)  # noqa: B023
            done = await asyncio.to_thread(steer, path, "rollback", {"to": 1})
            assert done.outcome == "applied"
            await until(lambda: service.steering.ended)
            assert service.published.newest.version == 3

    asyncio.run(scenario())
    with closing(open_store(path)) as store:
        assert (store.run().version, replay(store).equal) == (3, True)


@pytest.mark.slow
def test_replicas_end_together_and_survive_a_kill(tmp_path, postgres):
    store = postgres.new_place()
    init = write_model(tmp_path / "model.safetensors")
    words = ("--m", "1", "--max-versions", "40", "--open-enrolment", "--keep-payloads")
    words += ("--per-worker", "1000", "--updates-per-minute", "100000")
    servers = [ServerProcess(store, init, tmp_path / f"{n}.log", *words) for n in range(2)]
    accepted, ended = [], []

    def send(server, worker):
        for number in range(1000):
            with suppress(Unreachable, OSError), Line(server.port) as line:
                answer = line.push(encoded(LAYOUT, worker, str(number)))
                if answer.status == 202:
                    accepted.append((worker, number))
                elif answer.status == 410:
                    ended.append(answer.json()["error"])
                    return
            time.sleep(0.1)

    try:
        for server in servers:
            server.start()
        for server in servers:
            server.await_ready()
        threads = [
            threading.Thread(target=send, args=(servers[n % 2], f"w{n}"), daemon=True)
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: servers[0].status()["version"] >= 2)
        leader = next(server for server in servers if server.status()["leads"])
        leader.kill()
        leader.start()
        leader.await_ready()
        for thread in threads:
            thread.join(60)
        assert ended == ["run_ended"] * 4
        wait_until(lambda: all(s.status()["buffered"] == 0 for s in servers))
        assert {s.status()["version"] for s in servers} == {40}
    finally:
        for server in servers:
            if server.running:
                server.kill()
    with closing(open_store(store)) as opened:
        assert opened.run().version == 40
        assert replay(opened).equal
        assert opened.waiting() == []
        [end] = commands(opened)
        assert (end.kind, end.version) == ("end", 40)
        stored = {(row.worker, row.id) for row in opened.trace()}
        assert {(worker, str(number)) for worker, number in accepted} <= stored
