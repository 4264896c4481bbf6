from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from anarchic.server import limits
from anarchic.server.limits import Pace, Shares
from anarchic.server.refusals import Refusal
from tests.server.live import serving, until
from tests.server.make import body


def test_a_worker_may_burst_and_then_keeps_its_pace():
    now = [0.0]
    pace = Pace(per_minute=60, burst=3, clock=lambda: now[0])
    for _ in range(3):
        pace.take("ann")
    with pytest.raises(Refusal) as refused:
        pace.take("ann")
    assert (refused.value.status, refused.value.retry_after_s) == (429, 1.0)
    pace.take("bob")  # others are not held up
    now[0] = 1.0
    pace.take("ann")
    with pytest.raises(Refusal):
        pace.take("ann")


def test_paces_of_workers_long_silent_are_forgotten():
    now = [0.0]
    pace = Pace(per_minute=60, burst=1, clock=lambda: now[0])
    for worker in range(10_000):
        pace.take(str(worker))
    now[0] = 10.0
    pace.take("one more")
    assert len(pace._buckets) == 1


def test_paces_of_many_busy_workers_are_looked_through_rarely(monkeypatch):
    """Each of them may still have to wait, so that nothing can be forgotten."""
    monkeypatch.setattr(limits, "FEW", 8)
    pace, looks = Pace(per_minute=1, burst=1, clock=lambda: 0.0), []
    forget = pace._remove_full
    pace._remove_full = lambda now: looks.append(len(pace._buckets)) or forget(now)
    for worker in range(100):
        pace.take(str(worker))
    assert looks == [9, 19, 39, 79]
    assert len(pace._buckets) == 100


def test_a_share_costs_the_same_however_many_wait():
    shares, looked = Shares(most=2, alone=2), []

    class Many(Counter):
        def items(self):
            looked.append("items")
            return super().items()

        def values(self):
            looked.append("values")
            return super().values()

    shares.reset(Many({str(worker): 1 for worker in range(5)}))
    looked.clear()
    shares.take("ann")
    shares.sent("ann", accepted=True)
    assert shares.total == 6
    shares.folded(Counter({"ann": 1, "3": 2, "bob": 1}))  # more than were here of two
    assert (shares.total, looked) == (4, [])


def test_shares_count_what_is_being_sent_and_what_waits():
    shares = Shares(most=2, alone=2)
    shares.take("ann")
    shares.take("ann")
    with pytest.raises(Refusal) as refused:
        shares.take("ann")
    assert refused.value.code == "too_many_updates"
    shares.sent("ann", accepted=True)
    shares.sent("ann", accepted=False)  # a duplicate: its place is free again
    shares.take("ann")
    with pytest.raises(Refusal):
        shares.take("ann")
    shares.folded(Counter(ann=1, bob=1))  # bob's came through another replica
    shares.take("ann")
    assert shares.total == 0
    shares.reset(Counter(ann=2, bob=1))
    assert shares.total == 3
    shares.folded(Counter(bob=2, ann=1))
    assert shares.total == 1


def test_a_lone_worker_may_fill_the_buffer():
    now = [0.0]
    shares = Shares(most=1, alone=3, clock=lambda: now[0])

    def sends(worker):
        try:
            shares.take(worker)
        except Refusal:
            return False
        shares.sent(worker, accepted=True)
        return True

    assert [sends("ann"), sends("ann")] == [True, False]  # others may be about to come
    now[0] = 11.0
    assert [sends("ann"), sends("ann"), sends("ann")] == [True, True, False]
    shares.folded(Counter(ann=3))
    assert [sends("bob"), sends("ann"), sends("ann")] == [True, True, False]  # no longer alone
    now[0] = 20.0
    assert not sends("ann")
    now[0] = 22.0  # bob has left
    assert [sends("ann"), sends("ann"), sends("ann")] == [True, True, False]


def test_duplicates_do_not_count_as_another_worker():
    """Or with duplicates alone it could keep the others from ever filling the buffer."""
    now = [0.0]
    shares = Shares(most=1, alone=2, clock=lambda: now[0])

    def sends(worker, *, accepted=True):
        shares.take(worker)
        shares.sent(worker, accepted=accepted)

    sends("bob")
    sends("ann")
    now[0] = 11.0
    sends("bob", accepted=False)  # a duplicate or a conflict
    sends("ann")


@pytest.mark.slow
def test_duplicates_and_conflicts_do_not_stall_those_who_work(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "ALONE_S", 0.5)

    async def run():
        async with serving(tmp_path / "run.db", rules={"m": 4}) as (service, client):

            async def push(worker, id, seed=0):
                answer = await client.post("/v1/updates", content=body(worker, id, seed=seed))
                return answer.status_code

            assert await push("bob", "1") == 202
            began, told = time.monotonic(), []
            while service.published.newest.version == 0 and time.monotonic() - began < 5:
                told.append(await push("bob", "1", seed=len(told) % 2))  # one id, two bodies
                await push("ann", f"{len(told)}")
                await asyncio.sleep(0.05)
            assert service.published.newest.version == 1
            assert set(told) == {200, 409}

    asyncio.run(run())


def test_two_workers_fill_an_odd_buffer_at_once(tmp_path):
    async def run():
        async with serving(tmp_path / "run.db", rules={"m": 3}) as (service, client):
            for worker, id in (("ann", "1"), ("bob", "1"), ("ann", "2")):
                answer = await client.post("/v1/updates", content=body(worker, id))
                assert answer.status_code == 202, answer.text
            await until(lambda: service.published.newest.version == 1)

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
                await until(lambda number=number: service.published.newest.version == number + 1)
            await until(lambda: service.pending.count == 0)
            assert not service.pending._shares._sending

    asyncio.run(run())
