"""Reading bodies: pieces, rates, deadlines, and giving way."""

from __future__ import annotations

import asyncio
import time

import pytest

from anarchic.errors import MalformedUpdate, NotFinite, StaleUpdate
from anarchic.server import bodies
from anarchic.server.bodies import Bodies, Body, Disconnected
from anarchic.server.records import Receipt
from anarchic.server.refusals import Refusal
from anarchic.server.settings import Limits


def chunks(*parts, delay_s=0.0):
    queue = list(parts)

    async def receive():
        await asyncio.sleep(delay_s)
        if not queue:
            return {"type": "http.disconnect"}
        part = queue.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(queue)}

    return receive


def read(receive, length, **limits):
    async def run():
        body = Body(receive, length, Limits(**limits))
        async with body.in_time():
            await body.first_piece()
            await body.rest()
        return bytes(body.held)

    return asyncio.run(run())


def test_a_body_is_read_whole():
    assert read(chunks(b"ab", b"cd", b"e"), 5) == b"abcde"
    assert read(chunks(b"ab", b"cd", b"e"), 5, first_piece=1) == b"abcde"
    assert read(chunks(b""), 0) == b""


@pytest.mark.parametrize(("parts", "length"), [((b"abc",), 5), ((b"abcdef",), 5)])
def test_a_body_of_another_length_is_refused(parts, length):
    with pytest.raises(Refusal, match="malformed"):
        read(chunks(*parts), length)


def test_a_client_that_disconnects_gets_no_answer():
    with pytest.raises(Disconnected):
        read(chunks(), 5)


def test_a_slow_body_is_refused_in_its_first_piece():
    with pytest.raises(Refusal, match="too_slow"):
        read(chunks(*[b"x"] * 100, delay_s=0.02), 100, first_piece_s=0.1)


def test_a_lower_rate_gives_the_first_piece_more_time():
    parts = [b"x"] * 20
    assert len(read(chunks(*parts, delay_s=0.02), 20, first_piece_s=0.1, least_rate=10)) == 20


@pytest.mark.slow
def test_a_body_in_a_slot_must_keep_the_least_rate():
    with pytest.raises(Refusal, match="too_slow"):
        read(chunks(*[b"x"] * 1000, delay_s=0.1), 1000, first_piece=1, least_rate=1000)


@pytest.mark.slow
def test_slow_lines_above_the_least_rate_all_get_through_in_turn():
    """Eight bodies at a tenth above the least rate, two slots: some wait, none is refused."""

    async def send(bodies, number):
        pieces = [b"x" * 550] * 20

        async def receive():
            await asyncio.sleep(0.05)
            return {"type": "http.request", "body": pieces.pop(), "more_body": bool(pieces)}

        async def submit(body):
            return len(body)

        return await bodies.read(receive, 11_000, f"w{number}", check=lambda _: None, submit=submit)

    async def run():
        bodies = Bodies(Limits(bodies=2, first_piece=550, least_rate=10_000))
        return await asyncio.gather(*(send(bodies, number) for number in range(8)))

    assert asyncio.run(run()) == [11_000] * 8


@pytest.mark.slow
def test_a_sender_is_not_blamed_while_the_server_is_busy():
    blocked = []

    async def receive():
        if not blocked:
            blocked.append(time.sleep(1.0))  # the event loop stands still, not the sender
            await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x" * 20_000, "more_body": True}

    async def run():
        reading = Body(receive, 40_000, Limits(least_rate=1e9))
        await reading.rest()
        return reading.held

    assert asyncio.run(run()) == b"x" * 40_000


@pytest.mark.slow
def test_a_body_that_is_late_in_all_is_refused(monkeypatch):
    """It keeps the least rate now and then, and rests in between."""
    monkeypatch.setattr(bodies, "LOOK_S", 0.02)
    monkeypatch.setattr(bodies, "SLOW_S", 0.2)

    async def run():
        came = asyncio.Queue()

        async def send():
            for _ in range(40):
                came.put_nowait({"type": "http.request", "body": b"x" * 100, "more_body": True})
                await asyncio.sleep(0.1)

        sending = asyncio.create_task(send())
        reading = Body(came.get, 4_000, Limits(first_piece=1, least_rate=5_000))
        with pytest.raises(Refusal, match="too_slow"):
            await reading.rest()
        sending.cancel()
        return reading._got

    assert 500 < asyncio.run(run()) < 2_000


def never():
    async def receive():
        await asyncio.sleep(60)

    return receive


def stuck_after(piece):
    pieces = [piece]

    async def receive():
        if not pieces:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": pieces.pop(), "more_body": True}

    return receive


def test_a_body_gives_way_wherever_it_waits():
    async def run(length, first):
        body = Body(first, length, Limits(first_piece=10))
        asyncio.get_running_loop().call_later(0.05, body.give_way)
        async with body.in_time():
            await body.first_piece()
            await body.rest()

    for length, first in ((5, never()), (20, stuck_after(b"x" * 10))):
        with pytest.raises(Refusal, match="busy"):
            asyncio.run(run(length, first))


def intake(*, check=lambda piece: None, refusal=None, **limits):
    """Bodies, and how to send one of 20 bytes; what was submitted is in ``got``."""
    made, got = Bodies(Limits(first_piece=10, **limits)), []

    async def submit(body):
        if refusal is not None:
            raise refusal
        got.append(bytes(body))
        return Receipt("accepted", 1)

    def send(key, receive, length=20):
        reading = made.read(receive, length, key, check=check, submit=submit)
        return asyncio.create_task(reading)

    return made, send, got


def test_junk_is_refused_by_its_first_piece_and_takes_no_slot():
    def check(piece):
        raise MalformedUpdate(f"{bytes(piece)!r} is no header.")

    async def run():
        made, send, got = intake(check=check)
        with pytest.raises(MalformedUpdate):
            await send("eve", chunks(b"x" * 10, b"x" * 10))
        assert (made._slots._last_turn, got) == ({}, [])
        await send("ann", chunks(b"x" * 5), length=5)  # small ones are checked as a whole
        assert got == [b"x" * 5]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("refusal", "wasted"),
    [
        (NotFinite("NaN"), True),
        (MalformedUpdate("junk"), True),
        (StaleUpdate("old"), False),
        (Refusal(429, "too_many_updates", "", ""), False),
    ],
)
def test_who_sends_junk_stands_behind_the_others(refusal, wasted):
    async def run():
        made, send, _ = intake(refusal=refusal)
        with pytest.raises(type(refusal)):
            await send("eve", chunks(b"x" * 10, b"x" * 10))
        assert made._slots._is_wasteful(("", "eve")) == wasted
        assert not made._slots._held
        assert not made._pieces._held

    asyncio.run(run())


def test_first_pieces_together_are_bounded():
    """The oldest that still waits for its sender gives way."""

    async def run():
        made, send, got = intake(waiting_bodies=3)
        stalled = [send("eve", never()) for _ in range(3)]
        await asyncio.sleep(0.01)
        await send("ann", chunks(b"x" * 20))
        assert got == [b"x" * 20]
        with pytest.raises(Refusal, match="busy"):
            await stalled[0]
        assert made._pieces._sums == {"": {("", "eve"): 20}}
        for task in stalled[1:]:
            task.cancel()
        await asyncio.gather(*stalled, return_exceptions=True)
        assert not made._pieces._sums

    asyncio.run(run())
