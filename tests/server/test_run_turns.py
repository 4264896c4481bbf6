"""Runs that share a server take turns, whatever one of them sends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from anarchic.server import run_turns as module
from anarchic.server.refusals import Refusal
from anarchic.server.run_turns import PER_RUN, RUN, RunThreads, Turns


def test_a_run_with_few_requests_does_not_wait_behind_one_with_many():
    order = []

    async def ask(turns, run):
        await turns.take(run)
        order.append(run)

    async def scenario():
        turns = Turns()
        flood = [asyncio.create_task(ask(turns, "flooded")) for _ in range(100)]
        await asyncio.sleep(0)  # all of them wait
        few = [asyncio.create_task(ask(turns, "other")) for _ in range(3)]
        await asyncio.gather(*flood, *few)
        assert turns._waiting == {}
        assert turns._pass is None

    asyncio.run(scenario())
    last = len(order) - order[::-1].index("other")
    assert order[:last].count("flooded") <= 4 + 3 * module.AT_ONCE


def test_who_leaves_while_it_waits_takes_no_turn(monkeypatch):
    async def scenario():
        turns = Turns()
        waiting = [asyncio.create_task(turns.take("a")) for _ in range(20)]
        await asyncio.sleep(0)
        for task in waiting[:19]:
            task.cancel()
        await waiting[19]
        monkeypatch.setattr(module, "MOST_WAITING", 2)
        more = [asyncio.create_task(turns.take("a")) for _ in range(module.AT_ONCE + 3)]
        found = await asyncio.gather(*more, return_exceptions=True)
        assert found[:-1] == [None] * (module.AT_ONCE + 2)
        assert isinstance(found[-1], Refusal)

    asyncio.run(scenario())


def test_a_run_whose_store_hangs_holds_its_own_threads_alone():
    hangs = threading.Event()

    async def call(run, function):
        RUN.set(run)
        return await asyncio.to_thread(function)

    async def scenario():
        asyncio.get_running_loop().set_default_executor(RunThreads())
        stuck = [asyncio.create_task(call("sick", hangs.wait)) for _ in range(100)]
        await asyncio.sleep(0.05)
        assert sum(t.name.startswith("runs") for t in threading.enumerate()) <= PER_RUN
        async with asyncio.timeout(5):
            assert await call("well", lambda: "done") == "done"
        with pytest.raises(ZeroDivisionError):
            await call("well", lambda: 1 / 0)
        hangs.set()
        assert await asyncio.gather(*stuck) == [True] * 100

    try:
        asyncio.run(scenario())
    finally:
        hangs.set()
