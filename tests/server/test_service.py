from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from anarchic import wire
from anarchic.errors import ConfigError
from anarchic.server import access
from anarchic.server.accounts import new_token, put_account
from anarchic.server.commands import issue
from anarchic.server.operate import apply_waiting
from anarchic.server.runs import check_alone, open_run, stored_layout, stored_rules
from anarchic.server.service import Service
from anarchic.server.settings import ServerSettings
from anarchic.server.store import open_store
from tests.server.live import newest_snapshot, serving, until
from tests.server.make import DIM, LAYOUT, begun, body, first_params


@pytest.fixture
def init(tmp_path):
    wire.save_model(tmp_path / "model.safetensors", LAYOUT, first_params())
    return tmp_path / "model.safetensors"


def test_a_run_is_begun_once_and_then_gone_on_with(tmp_path, init):
    store = open_store(tmp_path / "run.db")
    begun_run = open_run(store, {"rule": "afa-cs", "m": 3}, init)
    assert stored_rules(begun_run).rule == "afa-cs"
    assert stored_layout(begun_run) == LAYOUT
    again = open_run(store, {}, None)
    assert (again.id, stored_rules(again)) == (begun_run.id, stored_rules(begun_run))
    assert open_run(store, {"m": 3}, init).id == begun_run.id
    with pytest.raises(ConfigError, match="m is 3 there and 5 here"):
        open_run(store, {"m": 5}, init)
    store.close()


def test_a_store_without_a_run_needs_a_first_model(tmp_path):
    store = open_store(tmp_path / "run.db")
    with pytest.raises(ConfigError, match="--init"):
        open_run(store, {}, None)
    with pytest.raises(ConfigError, match="holds no run"):
        Service(store)
    store.close()


def test_workers_without_tokens_cannot_fill_the_memory_of_afa_cs(tmp_path):
    store = open_store(tmp_path / "run.db")
    begun(store, rule="afa-cs")
    Service(store, ServerSettings())
    with pytest.raises(ConfigError, match="begin the run with --cap N"):
        Service(store, ServerSettings(open_enrolment=True))
    store.close()
    store = open_store(tmp_path / "capped.db")
    begun(store, rule="afa-cs", cap=8)
    Service(store, ServerSettings(open_enrolment=True))
    store.close()


def test_a_run_of_a_later_version_is_refused_if_it_has_settings_that_are_not_known(tmp_path):
    store = open_store(tmp_path / "run.db")
    run = begun(store)
    with pytest.raises(ConfigError, match="begun with sharpness, which this server does not know"):
        stored_rules(replace(run, settings={**run.settings, "sharpness": 3}))
    store.close()


def test_a_second_server_on_one_file_is_refused(tmp_path):
    first, second = open_store(tmp_path / "run.db"), open_store(tmp_path / "run.db")
    begun(first)
    check_alone(first)
    assert first.lead() is not None
    with pytest.raises(ConfigError, match="Another server has this store open"):
        check_alone(second, wait_s=0.2)
    first.resign()
    with pytest.raises(ConfigError, match="Another server has this store open"):
        check_alone(second, wait_s=0.2)  # it goes on serving, and soon leads again
    first.close()
    check_alone(second)
    second.close()


@pytest.mark.slow
def test_a_server_waits_for_a_command_line_that_applies_a_command(tmp_path):
    """On a store that no server runs on. It used to end after 3 seconds."""
    first, second = open_store(tmp_path / "run.db"), open_store(tmp_path / "run.db")
    begun(first)
    number = issue(first, "set", {"m": 2}, by="op", now_s=1.0).number
    epoch, told = first.lead(), []  # as a command line has it
    assert epoch is not None

    def applied():
        time.sleep(0.6)
        apply_waiting(first, epoch)
        first.resign()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(applied)
        check_alone(second, wait_s=0.3, log=lambda event, **facts: told.append((event, facts)))
        done.result()
    assert told == [("waits_for_command", {"number": number, "kind": "set", "issued_by": "op"})]
    second.close()
    assert first.lead() is not None
    issue(first, "rollback", {"to": 0}, by="op", now_s=1.0)
    third = open_store(tmp_path / "run.db")
    with pytest.raises(ConfigError, match=r"command 2 \(rollback, by op\) is not applied yet"):
        check_alone(third, wait_s=0.1, apply_s=0.3)
    first.close()
    third.close()


def test_accounts_are_read_when_one_has_changed_whatever_went_wrong_before(tmp_path, monkeypatch):
    monkeypatch.setattr(access, "ACCOUNTS_S", 0.02)
    store = open_store(tmp_path / "run.db")
    begun(store)
    token, account = new_token("ann")
    put_account(store, account)
    reads, surprises = [], [RuntimeError("none of the store's own errors"), KeyError()]

    def accounts(store, read=access.accounts):
        reads.append(store)
        if len(reads) > 1 and surprises:
            raise surprises.pop()
        return read(store)

    monkeypatch.setattr(access, "accounts", accounts)

    async def scenario():
        async with serving(tmp_path / "run.db", open_enrolment=False) as (_, client):
            await asyncio.sleep(0.2)
            assert len(reads) == 1  # ten looks, and nothing had changed
            good = {"authorization": f"Bearer {token}"}
            assert (await client.get("/v1/model", headers=good)).status_code == 200
            put_account(store, replace(account, revoked=True))
            async with asyncio.timeout(5):
                while (await client.get("/v1/model", headers=good)).status_code != 403:
                    await asyncio.sleep(0.02)
            assert (len(reads), surprises) == (4, [])

    asyncio.run(scenario())
    store.close()


def test_a_replica_that_begins_the_run_too_late_goes_on_with_it(tmp_path, init):
    store = open_store(tmp_path / "run.db")
    late = open_store(tmp_path / "run.db")
    looks = [None]
    try:
        first = open_run(store, {"m": 3}, init)
        late_run, late.run = late.run, lambda: looks.pop() if looks else late_run()
        assert open_run(late, {"m": 3}, init).id == first.id
        looks.append(None)
        with pytest.raises(ConfigError, match="m is 3 there and 4 here"):
            open_run(late, {"m": 4}, init)
    finally:
        store.close()
        late.close()


def test_a_run_ends_and_another_begins_with_its_newest_model(tmp_path):
    """Also where vectors travel beside the model: they are not part of it."""
    pulled = tmp_path / "newest.safetensors"
    rules = {"m": 1, "local_rule": "scaffold", "workers": 4}

    async def scenario():
        async with serving(tmp_path / "run.db", rules=rules) as (service, client):
            sent = body("ann", extras={"control": np.ones(DIM, np.float32)})
            assert (await client.post("/v1/updates", content=sent)).status_code == 202
            await until(lambda: service.published.newest.version == 1)
            pulled.write_bytes((await client.get("/v1/model")).content)
            return newest_snapshot(service)

    before = asyncio.run(scenario())
    assert before.extras["control"].tolist() == [0.25] * DIM
    store = open_store(tmp_path / "next.db")
    open_run(store, rules, pulled)
    _, first, _ = wire.decode_snapshot(store.model(0))
    store.close()
    assert (first.version, first.params.tobytes()) == (0, before.params.tobytes())
    assert not first.extras["control"].any()


@pytest.mark.slow
def test_a_second_name_of_the_store_is_told_once(tmp_path):
    lines = []

    def told():
        return [facts for event, facts in lines if event == "store_has_other_names"]

    async def link():
        async with serving(tmp_path / "run.db") as (service, _):
            service.log = lambda event, **facts: lines.append((event, facts))
            await asyncio.sleep(1.2)
            assert told() == []
            (tmp_path / "other").hardlink_to(tmp_path / "run.db")
            await until(told)
            await asyncio.sleep(1.2)

    asyncio.run(link())
    assert [facts["links"] for facts in told()] == [2]
    assert "-samefile" in told()[0]["reason"]
