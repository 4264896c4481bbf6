"""When the aggregator steps, and when it shows what it has."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from anarchic.errors import StoreError, StoreUnavailable
from anarchic.server import access
from anarchic.server import aggregate as module
from anarchic.server.accounts import accounts, new_token, put_account
from anarchic.server.fold import Folding
from anarchic.server.limits import Shares
from anarchic.server.pending import READ_AT_ONCE
from anarchic.server.published import PublishedModels
from anarchic.server.replay import replay
from anarchic.server.runs import begin
from anarchic.server.service import Service
from anarchic.server.settings import RuleSettings
from anarchic.server.store import Store, open_store
from tests.server.live import newest_snapshot, serving, stored, until
from tests.server.make import DIM, LAYOUT, begun, body, first_params
from tests.server.stored import state_of

FREE = {"per_worker": 1000, "burst": 1000}
WAIT_S = 0.3


@pytest.mark.slow
def test_a_timer_counts_from_the_oldest_update_that_waits(tmp_path):
    """Not from one that an earlier step has used up: the second would be stepped with at once."""

    async def scenario():
        settings = {"rules": {"m": 10}, "step_after_s": WAIT_S}
        async with serving(tmp_path / "run.db", **settings) as (service, client):
            for version in (1, 2):
                sent = time.monotonic()
                await client.post("/v1/updates", content=body("ann", str(version)))
                await until(lambda version=version: service.published.newest.version == version)
                assert time.monotonic() - sent >= WAIT_S

    asyncio.run(scenario())


def test_a_version_tells_the_mean_loss_of_its_updates_to_whoever_reads_the_store(tmp_path):
    path, most = tmp_path / "run.db", 1.7e308

    async def scenario():
        async with serving(path, rules={"m": 3}, limits=FREE) as (service, client):
            told = []
            for version, losses in enumerate(([0.5, 1.5, None], [None] * 3, [most] * 3, [2.0] * 3)):
                for number, loss in enumerate(losses):
                    sent = body("ann", f"{version}-{number}", base_version=version, loss=loss)
                    assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await until(lambda version=version: service.published.newest.version == version + 1)
                told.append((await client.get("/v1/status")).json()["loss"])
            assert "anarchic_loss 2.0" in (await client.get("/metrics")).text
            return told

    assert asyncio.run(scenario()) == [1.0, None, None, 2.0]
    store = open_store(path)
    service = Service(store, log=lambda event, **facts: None)
    service.aggregator.catch_up()  # as a server does that follows
    assert (service.published.newest.version, service.published.newest.loss) == (4, 2.0)
    store.close()


@pytest.mark.slow
def test_versions_are_shown_however_many_updates_wait(tmp_path, monkeypatch):
    """Steps go unpublished while the next is waiting, but only for a quarter of a second."""
    shown = []

    def slow_fold(self, seq, decoded, fold=Folding.fold):
        time.sleep(0.03)
        return fold(self, seq, decoded)

    def noted_post(self, model, post=PublishedModels.post):
        shown.append(model.version)
        post(self, model)

    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 1}, limits=FREE) as (service, client):
            monkeypatch.setattr(Folding, "fold", slow_fold)
            monkeypatch.setattr(PublishedModels, "post", noted_post)
            pushes = (client.post("/v1/updates", content=body("ann", str(n))) for n in range(32))
            answers = await asyncio.gather(*pushes)
            assert {answer.status_code for answer in answers} == {202}
            await until(lambda: service.published.newest.version == 32)

    asyncio.run(scenario())
    assert 4 <= len(shown) < 32  # 32 updates take a second


@pytest.mark.slow
def test_a_publication_of_afa_cs_writes_what_changed_however_many_workers(tmp_path, monkeypatch):
    publications = []
    publish = Store.publish

    def noted(self, publication):
        publications.append(publication)
        publish(self, publication)

    monkeypatch.setattr(Store, "publish", noted)

    async def scenario():
        rules = {"rule": "afa-cs", "m": 1, "cap": 50, "guard": 0}
        async with serving(tmp_path / "run.db", rules=rules) as (service, client):
            for number in range(60):
                sent = body(f"w{number:02}", base_version=number)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await until(lambda n=number: service.published.newest.version == n + 1)

    asyncio.run(scenario())
    assert [list(p.rows) for p in publications] == [[f"w{number:02}"] for number in range(60)]
    assert [list(p.forgotten) for p in publications[49:52]] == [[], ["w00"], ["w01"]]
    assert {len(row) for p in publications for row in p.rows.values()} == {16 + 4 * DIM}
    states = [len(p.state) for p in publications]
    assert max(states) - min(states) <= 8  # another digit of a number, and the file's alignment


@pytest.mark.parametrize("rules", [{"staleness_power": 2000.0}, {"clip": 5e-324}], ids=str)
def test_an_update_with_a_tiny_weight_is_not_lost(tmp_path, rules):
    """Multiplied by its factor its rate rounds to nothing, which a rule refuses."""

    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 1, **rules}) as (service, client):
            for number, local_lr in enumerate((0.1, 1e-30, 1e-30)):
                sent = body("ann", str(number), local_lr=local_lr)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await until(lambda n=number: service.published.newest.version == n + 1)

    asyncio.run(scenario())


@pytest.fixture
def revocable(tmp_path, monkeypatch):
    """A run of AFA-CS whose workers have tokens, and a store beside the server's."""
    monkeypatch.setattr(access, "ACCOUNTS_S", 0.02)
    path = tmp_path / "run.db"
    store = open_store(path, keep_payloads=True)
    tokens = {}
    for worker in ("ann", "bob", "cleo"):
        tokens[worker], account = new_token(worker)
        put_account(store, account)

    def revoke(worker):
        put_account(store, replace(accounts(store)[worker], revoked=True))

    @asynccontextmanager
    async def pushing():
        async with serving(path, open_enrolment=False) as (service, client):

            async def push(worker, id, direction, version=None):
                """Direction * 0.1 in every coordinate; waits for ``version`` where one comes."""
                sent = body(worker, id, direction=np.full(DIM, direction, np.float32))
                token = {"authorization": f"Bearer {tokens[worker]}"}
                answer = await client.post("/v1/updates", content=sent, headers=token)
                assert answer.status_code == 202
                if version is not None:
                    await until(lambda: service.published.newest.version == version)

            def moved():
                """How far the model has come from its first parameters."""
                return (first_params() - newest_snapshot(service).params).tolist()

            async def noticed(worker):
                token = {"authorization": f"Bearer {tokens[worker]}"}
                async with asyncio.timeout(5):
                    while (await client.get("/v1/model", headers=token)).status_code != 403:
                        await asyncio.sleep(0.02)

            yield push, moved, noticed

    yield store, revoke, pushing
    store.close()


def test_a_revoked_worker_counts_in_no_further_round(revocable):
    store, revoke, pushing = revocable
    begun(store, rule="afa-cs", m=1, clip=1e6)

    async def scenario():
        async with pushing() as (push, moved, noticed):
            await push("ann", "1", 30.0, version=1)  # moves by 3
            await push("bob", "1", 10.0, version=2)  # by the mean of 3 and 1
            revoke("ann")
            await noticed("ann")
            await push("bob", "2", 20.0, version=3)  # by 2, of bob alone
            assert moved() == pytest.approx([7.0] * DIM, rel=1e-6)
        async with pushing() as (push, moved, _):
            await push("bob", "3", 10.0, version=4)
            assert moved() == pytest.approx([8.0] * DIM, rel=1e-6)

    asyncio.run(scenario())
    assert (list(state_of(store)[1]), store.revoked()) == (["bob"], {2: ["ann"]})
    assert replay(store).equal


def test_updates_sent_before_revocation_count_once_across_restarts(revocable):
    store, revoke, pushing = revocable
    begun(store, rule="afa-cs", m=2)

    async def scenario():
        async with pushing() as (push, _, _):
            await push("ann", "1", 30.0)  # accepted, in no version
        revoke("ann")
        async with pushing() as (push, moved, _):
            await push("bob", "1", 10.0, version=1)
            assert moved() == pytest.approx([2.0] * DIM, rel=1e-6)  # the mean of 3 and 1
            await push("bob", "2", 10.0)  # ann's row is dropped, and no version says so yet
        async with pushing() as (push, moved, _):
            await push("cleo", "1", 30.0, version=2)
            assert moved() == pytest.approx([4.0] * DIM, rel=1e-6)  # of 1 and 3, bob's and cleo's

    asyncio.run(scenario())
    assert (sorted(state_of(store)[1]), store.revoked()) == (["bob", "cleo"], {1: ["ann"]})
    assert replay(store).equal


def test_a_follower_makes_room_for_updates_before_it_shows_the_version_that_took_them(
    tmp_path, monkeypatch
):
    store = open_store(tmp_path / "run.db")
    rules = RuleSettings()
    begin(store, rules, LAYOUT, first_params())
    service = Service(store, log=lambda event, **facts: None)
    shown = []
    monkeypatch.setattr(
        Shares, "reset", lambda self, waiting: shown.append(service.published.has_one)
    )
    service.aggregator.catch_up()
    assert (shown, service.published.has_one) == ([False], True)
    store.close()


def test_an_update_stored_without_an_answer_is_folded(tmp_path, monkeypatch):
    """The commit succeeded, its answer was lost: the update waits for no restart."""
    append = Store.append

    def lost(self, updates):
        append(self, updates)
        raise StoreUnavailable("The connection broke.")

    async def run():
        async with serving(tmp_path / "run.db", rules={"m": 4}) as (service, client):
            monkeypatch.setattr(Store, "append", lost)
            answer = await client.post("/v1/updates", content=body("ann", "1"))
            assert answer.status_code == 503
            monkeypatch.setattr(Store, "append", append)
            answer = await client.post("/v1/updates", content=body("ann", "1"))
            assert answer.status_code == 200  # the re-send settles it
            for worker in ("bob", "cid", "dan"):
                answer = await client.post("/v1/updates", content=body(worker, "1"))
                assert answer.status_code == 202
            await until(lambda: service.published.newest.version == 1)

    asyncio.run(run())


@pytest.mark.slow
def test_many_waiting_updates_are_read_in_pieces(tmp_path, monkeypatch):
    """However many are folded for one step, looking for the next few costs the same."""
    asked = []
    waiting = Store.waiting

    def noted(self, *given):
        found = waiting(self, *given)
        asked.append((given, len(found)))
        return found

    async def run():
        async with serving(tmp_path / "run.db", rules={"m": 401}, limits=FREE) as (_, client):
            for number in range(400):
                answer = await client.post("/v1/updates", content=body("ann", str(number)))
                assert answer.status_code == 202
        monkeypatch.setattr(Store, "waiting", noted)
        async with serving(tmp_path / "run.db", limits=FREE) as (service, client):
            await client.post("/v1/updates", content=body("ann", "400"))
            await until(lambda: service.published.newest.version == 1)

    asyncio.run(run())
    with stored(tmp_path / "run.db") as store:
        assert [folded.order for folded in store.trace()] == list(range(401))
    whole, pieces = [(g, n) for g, n in asked if not g], [n for g, n in asked if g]
    assert len(whole) <= 2  # on taking over: whose they are
    assert 400 / READ_AT_ONCE <= len(pieces) <= 400 / 32 + 8
    assert max(pieces) <= READ_AT_ONCE


def test_an_aggregator_that_fails_lets_another_lead_and_goes_on_later(tmp_path, monkeypatch):
    fold = Folding.fold

    async def run():
        async with serving(tmp_path / "run.db", rules={"m": 1}) as (service, client):
            monkeypatch.setattr(Folding, "fold", _bug)
            answer = await client.post("/v1/updates", content=body("ann", "1"))
            assert answer.status_code == 202
            await until(lambda: service.aggregator.failure)
            assert (await client.get("/healthz")).status_code == 503
            other = open_store(tmp_path / "run.db")
            try:
                await until(lambda: other.lead() is not None)
                assert [worker for _, worker in other.waiting()] == ["ann"]  # still there
                monkeypatch.setattr(Folding, "fold", fold)
            finally:
                other.close()
            await until(lambda: service.published.newest.version == 1)
            assert service.aggregator.leads
            assert (await client.get("/healthz")).status_code == 200

    asyncio.run(run())


@pytest.mark.tried(
    "a rule that raises SystemExit",
    before="the aggregator's thread ended, and the status said that it still led",
    now="the server gives up the lead, tries again, and says so",
)
def test_no_exception_ends_the_aggregator(tmp_path, monkeypatch):
    fold, told = Folding.fold, []

    def exits(self, seq, decoded):
        raise SystemExit(3)

    async def run():
        async with serving(tmp_path / "run.db", rules={"m": 1}) as (service, client):
            monkeypatch.setattr(Folding, "fold", exits)
            service.aggregator._log = lambda event, **facts: told.append(event)
            await client.post("/v1/updates", content=body("ann", "1"))
            await until(lambda: "aggregator_failed" in told)
            assert (await client.get("/healthz")).status_code == 503
            monkeypatch.setattr(Folding, "fold", fold)
            await until(lambda: service.published.newest.version == 1)
            assert (await client.get("/healthz")).status_code == 200

    asyncio.run(run())


@pytest.mark.slow
def test_updates_do_not_shorten_the_pause_after_an_error(tmp_path, monkeypatch):
    tries, publish = [], Store.publish

    def full(self, publication):
        tries.append(time.monotonic())
        raise StoreError("The disk is full.")

    async def run():
        async with serving(tmp_path / "run.db", rules={"m": 1}) as (service, client):
            monkeypatch.setattr(Store, "publish", full)
            for number in range(30):
                answer = await client.post("/v1/updates", content=body(f"w{number}", "1"))
                assert answer.status_code in (202, 429)
                await asyncio.sleep(0.02)
            assert all(b - a > 0.9 * module.RETRY_S for a, b in pairwise(tries))
            assert tries
            monkeypatch.setattr(Store, "publish", publish)
            await until(lambda: service.published.newest.version > 0)

    asyncio.run(run())


def _bug(self, seq, decoded):
    raise ZeroDivisionError("a bug")
