from __future__ import annotations

import asyncio
import json
from math import inf

import pytest

from anarchic.page import stream as module
from anarchic.page.stream import MOST_BYTES, Stream


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "LEAST_S", 0.01)
    monkeypatch.setattr(module, "SHARE", 1.0)
    monkeypatch.setattr(module, "BYTES_PER_S", 1e9)
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.05)


class Counting:
    """Pictures of which one part changes and one does not."""

    def __init__(self):
        self.made = 0

    def __call__(self):
        self.made += 1
        return {"same": [1, 2], "count": self.made}


def parts(event):
    (data,) = [line[6:] for line in event.decode().splitlines() if line.startswith("data: ")]
    return json.loads(data)


async def pictures(stream, many):
    found = []
    async for event in stream.watch():
        if b"data: " in event:
            found.append(parts(event))
        if len(found) == many:
            return found
    return found


def test_the_first_event_is_whole_and_later_ones_have_what_changed():
    found = asyncio.run(pictures(Stream(Counting()), 3))
    assert found == [{"same": [1, 2], "count": 1}, {"count": 2}, {"count": 3}]


def test_fifty_viewers_cost_as_many_pictures_as_one():
    async def scenario():
        make = Counting()
        stream = Stream(make)
        found = await asyncio.gather(*(pictures(stream, 10) for _ in range(50)))
        assert all(f[-1]["count"] >= 10 for f in found)
        return make.made

    assert asyncio.run(scenario()) < 30  # 500 if each viewer had its own


def test_nothing_is_made_while_nobody_looks():
    async def scenario():
        make = Counting()
        stream = Stream(make)
        await pictures(stream, 2)
        await asyncio.sleep(0.1)
        before = make.made
        await asyncio.sleep(0.1)
        assert (make.made, stream.viewers) == (before, 0)
        assert (await pictures(stream, 1))[0]["count"] >= before  # and it begins again

    asyncio.run(scenario())


def test_a_picture_that_cannot_be_made_is_told_and_made_again():
    async def scenario():
        turns, told = iter(range(100)), []

        def make():
            if next(turns) < 3:
                raise ValueError("disk")
            return {"well": True}

        stream = Stream(make, failed=told.append)
        found = await pictures(stream, 3)
        assert "failure" in found[0]
        assert any(f.get("well") for f in found) or (await pictures(stream, 1))[0]["well"]
        assert [str(error) for error in told] == ["disk"]  # once, not each time

    asyncio.run(scenario())


def test_a_closed_stream_ends():
    async def scenario():
        stream = Stream(Counting())
        looking = asyncio.create_task(pictures(stream, 1000))
        await asyncio.sleep(0.05)
        stream.close()
        assert await asyncio.wait_for(looking, 2)

    asyncio.run(scenario())


def test_a_picture_is_bounded_in_bytes():
    large = {"names": ["x" * 1000] * 1000, "head": 1}
    assert len(json.dumps(large)) > MOST_BYTES
    (found,) = asyncio.run(pictures(Stream(lambda: large), 1))
    assert found == {"head": 1}


def test_the_pause_follows_what_a_picture_cost(monkeypatch):
    slept = []

    async def scenario():
        stream = Stream(lambda: {"head": "x" * 1000})
        monkeypatch.setattr(module, "BYTES_PER_S", 100)
        await pictures(stream, 1)

    async def resting(self, seconds):
        slept.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(Stream, "_rest", resting)
    asyncio.run(scenario())
    assert slept[0] == pytest.approx(10.02, abs=0.05)  # 1002 bytes at 100 per second


def test_a_number_that_is_not_finite_does_not_cost_the_picture():
    (found,) = asyncio.run(pictures(Stream(lambda: {"good": 1, "bad": [inf, 2]}), 1))
    assert found == {"good": 1, "bad": [None, 2]}


def test_a_picture_that_is_asked_for_comes_at_once(monkeypatch):
    monkeypatch.setattr(module, "LEAST_S", 60.0)
    monkeypatch.setattr(module, "LONGEST_S", 60.0)

    async def scenario():
        make = Counting()
        stream = Stream(make)
        looking = asyncio.create_task(pictures(stream, 2))
        while stream._number < 1:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(stream.soon)  # the leader's thread
        assert (await asyncio.wait_for(looking, 5))[1] == {"count": 2}

    asyncio.run(scenario())
