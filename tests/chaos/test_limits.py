"""A body that others wait for, and shares that are counted right however late the news is."""

from __future__ import annotations

import asyncio
import time

import pytest

from anarchic.server import limits
from anarchic.server.limits import Body
from anarchic.server.refusals import Refusal
from anarchic.server.settings import Limits
from tests.server.live import serving, until
from tests.server.make import body


def _read(rate, contended):
    """A body of 20 kB that comes in pieces at ``rate`` bytes a second; the least is 10,000."""

    async def receive():
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b"x" * int(rate * 0.05), "more_body": True}

    async def run():
        reading = Body(receive, 20_000, Limits(first_piece=1, least_rate=10_000))
        await reading.first_piece()
        return await reading.rest(lambda: contended)

    return asyncio.run(run())


def test_one_who_is_waited_for_must_be_quicker():
    assert len(_read(20_000, contended=False)) >= 20_000
    began = time.monotonic()
    with pytest.raises(Refusal, match="too_slow"):
        _read(20_000, contended=True)
    assert time.monotonic() - began < 2


def test_a_server_that_could_not_read_does_not_blame_the_sender():
    blocked = []

    async def receive():
        if not blocked:
            blocked.append(time.sleep(1.0))  # the event loop stands still, not the sender
            await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x" * 20_000, "more_body": True}

    async def run():
        reading = Body(receive, 40_000, Limits(least_rate=1e9))
        return await reading.rest(lambda: True)

    assert asyncio.run(run()) == b"x" * 40_000


def test_duplicates_and_conflicts_do_not_stall_those_who_work(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "ALONE_S", 0.5)

    async def run():
        async with serving(tmp_path / "run.db", rules={"m": 4}) as (service, client):

            async def push(worker, id, seed=0):
                answer = await client.post("/v1/updates", content=body(worker, id, seed=seed))
                return answer.status_code

            assert await push("bob", "1") == 202
            began, told = time.monotonic(), []
            while service.board.newest.version == 0 and time.monotonic() - began < 5:
                told.append(await push("bob", "1", seed=len(told) % 2))  # one id, two bodies
                await push("ann", f"{len(told)}")
                await asyncio.sleep(0.05)
            assert service.board.newest.version == 1
            assert set(told) == {200, 409}

    asyncio.run(run())


def test_two_workers_fill_an_odd_buffer_at_once(tmp_path):
    async def run():
        async with serving(tmp_path / "run.db", rules={"m": 3}) as (service, client):
            for worker, id in (("ann", "1"), ("bob", "1"), ("ann", "2")):
                answer = await client.post("/v1/updates", content=body(worker, id))
                assert answer.status_code == 202, answer.text
            await until(lambda: service.board.newest.version == 1)

    asyncio.run(run())


def test_shares_are_free_again_once_a_version_holds_the_updates(tmp_path):
    """Not one place may be lost on the way, or the worker would be shut out for ever."""

    async def run():
        async with serving(tmp_path / "run.db", rules={"m": 2}) as (service, client):
            for number in range(30):
                pushes = [
                    client.post("/v1/updates", content=body(worker, str(number), seed=number))
                    for worker in ("ann", "bob")
                ]
                for answer in await asyncio.gather(*pushes):
                    assert answer.status_code == 202, answer.text
                await until(lambda number=number: service.board.newest.version == number + 1)
            await until(lambda: service.collector.shares.total() == 0)
            assert not service.collector.shares._sending

    asyncio.run(run())
