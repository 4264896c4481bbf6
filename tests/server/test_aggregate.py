"""When the aggregator steps, and when it shows what it has."""

from __future__ import annotations

import asyncio
import time

import pytest

from anarchic.server.sql import SqlStore
from tests.server.live import serving, until
from tests.server.make import DIM, body

FREE = {"per_worker": 1000, "burst": 1000}
WAIT_S = 0.3


def test_a_timer_counts_from_the_oldest_update_that_waits(tmp_path):
    """Not from one that an earlier step has used up: the second would be stepped with at once."""

    async def scenario():
        settings = {"rules": {"m": 10}, "step_after_s": WAIT_S}
        async with serving(tmp_path / "run.db", **settings) as (service, client):
            for version in (1, 2):
                sent = time.monotonic()
                await client.post("/v1/updates", content=body("ann", str(version)))
                await until(lambda version=version: service.board.newest.version == version)
                assert time.monotonic() - sent >= WAIT_S

    asyncio.run(scenario())


class Slow:
    """A rule that takes its time over every update."""

    def __init__(self, rule):
        self._rule = rule

    def __getattr__(self, name):
        return getattr(self._rule, name)

    def receive(self, state, update):
        time.sleep(0.03)
        return self._rule.receive(state, update)


def test_versions_are_shown_however_many_updates_wait(tmp_path):
    """Steps go unpublished while the next is waiting, but only for a quarter of a second."""
    shown = []

    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 1}, limits=FREE) as (service, client):
            service.aggregator._rule = Slow(service.aggregator._rule)
            service.board.listen(lambda: shown.append(service.board.newest.version))
            pushes = (client.post("/v1/updates", content=body("ann", str(n))) for n in range(32))
            answers = await asyncio.gather(*pushes)
            assert {answer.status_code for answer in answers} == {202}
            await until(lambda: service.board.newest.version == 32)

    asyncio.run(scenario())
    assert 4 <= len(shown) < 32  # 32 updates take a second


def test_a_publication_of_afa_cs_writes_what_changed_however_many_workers(tmp_path, monkeypatch):
    publications = []
    publish = SqlStore.publish

    def noted(self, publication):
        publications.append(publication)
        publish(self, publication)

    monkeypatch.setattr(SqlStore, "publish", noted)

    async def scenario():
        rules = {"rule": "afa-cs", "m": 1, "cap": 50}
        async with serving(tmp_path / "run.db", rules=rules) as (service, client):
            for number in range(60):
                sent = body(f"w{number:02}", base_version=number)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await until(lambda n=number: service.board.newest.version == n + 1)

    asyncio.run(scenario())
    assert [list(p.rows) for p in publications] == [[f"w{number:02}"] for number in range(60)]
    assert [list(p.forgotten) for p in publications[49:52]] == [[], ["w00"], ["w01"]]
    assert {len(row) for p in publications for row in p.rows.values()} == {16 + 4 * DIM}
    states = [len(p.state) for p in publications]
    assert max(states) - min(states) <= 8  # another digit of a number, and the file's alignment


@pytest.mark.parametrize("rules", [{"staleness_power": 2.0}, {"clip": 5e-324}], ids=str)
def test_an_update_that_weighs_next_to_nothing_is_not_lost(tmp_path, rules):
    """Multiplied by its factor its rate rounds to nothing, which a rule refuses."""

    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 1, **rules}) as (service, client):
            for number, local_lr in enumerate((0.1, 5e-324, 5e-324)):
                sent = body("ann", str(number), local_lr=local_lr)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await until(lambda n=number: service.board.newest.version == n + 1)

    asyncio.run(scenario())
