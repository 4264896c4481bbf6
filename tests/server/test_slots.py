"""Fair shares: who gets the next slot, and who gives one back."""

from __future__ import annotations

import asyncio

import pytest

from anarchic.server.refusals import Refusal
from anarchic.server.settings import Limits
from anarchic.server.slots import WASTED_S, Pool, Slots, key_of, network


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("testclient:", "testclient:"),
        ("", ""),
    ],
)
def test_an_ipv6_customer_is_one_network(address, found):
    assert network(address) == found


def test_a_token_separates_workers_behind_one_address():
    assert key_of("ann", "10.0.0.1") != key_of("bob", "10.0.0.1")
    assert key_of(None, "10.0.0.1") == key_of(None, "10.0.0.1") != key_of("10.0.0.1", "")


class Holders:
    """Take from a pool under a name, and see who had to give way."""

    def __init__(self, room):
        self.pool, self.gone, self.held = Pool(room), [], {}

    def take(self, key, name, size=1, *, ready=False):
        taken = self.pool.take(key, size, lambda: self.gone.append(name))
        taken.ready = ready
        self.held[name] = taken


def test_one_key_may_take_all_until_another_comes():
    holders = Holders(4)
    for number in range(4):
        holders.take("eve", f"eve{number}", ready=True)
    with pytest.raises(Refusal, match="busy"):
        holders.take("eve", "one more")
    holders.take("ann", "ann0", ready=True)
    holders.take("bob", "bob0", ready=True)
    assert holders.gone == ["eve3", "eve2"]
    with pytest.raises(Refusal, match="busy"):  # eve has most, as many as anybody
        holders.take("eve", "one more")
    assert holders.pool._sums[""] == {("", "eve"): 2, ("", "ann"): 1, ("", "bob"): 1}


def test_what_waits_for_its_sender_gives_way_first_and_also_to_its_own_key():
    holders = Holders(3)
    for number in range(3):
        holders.take("eve", f"eve{number}", ready=number == 0)
    holders.take("eve", "eve3")
    assert holders.gone == ["eve1"]
    holders.take("ann", "ann0")
    assert holders.gone == ["eve1", "eve2"]


def test_a_pool_counts_sizes_and_forgets_who_left():
    holders = Holders(10)
    holders.take("eve", "eve0", 6)
    holders.take("ann", "ann0", 4)
    holders.take("bob", "bob0", 5)
    assert holders.gone == ["eve0"]
    holders.pool.end(holders.held["eve0"])  # has given way already
    for name in ("ann0", "bob0"):
        holders.pool.end(holders.held[name])
    assert (holders.pool._free, holders.pool._held, holders.pool._sums) == (10, {}, {})


def test_what_is_being_stored_is_not_taken_back():
    holders = Holders(2)
    for name in ("eve0", "eve1"):
        holders.take("eve", name, ready=True)
        holders.held[name].kept = True
    with pytest.raises(Refusal, match="busy"):
        holders.take("ann", "ann0")
    assert (holders.gone, holders.pool._free) == ([], 0)


class Race:
    """Slots with a clock of their own, in the order in which they are granted."""

    def __init__(self, bodies, **limits):
        self.now, self.granted, self.gone = 100.0, [], []
        self.slots = Slots(Limits(bodies=bodies, **limits), clock=lambda: self.now)
        self.held = {}

    def come(self, key, name, rate=1e9):
        async def run():
            gone = self.gone.append
            slot = await self.slots.take(key, 16, rate=rate, give_way=lambda: gone(name))
            self.granted.append(name)
            self.held[name] = slot

        return asyncio.create_task(run())

    async def settle(self):
        for _ in range(5):
            await asyncio.sleep(0)

    async def end(self, name, **how):
        self.slots.end(self.held.pop(name), **how)
        await self.settle()

    async def look(self, after_s):
        """As the timer does."""
        self.now += after_s
        self.slots._share_out()
        await self.settle()


def raced(run, *given, **limits):
    async def whole():
        race = Race(*given, **limits)
        await run(race)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run(whole())


def test_slots_are_limited_and_waiting_for_one_times_out():
    async def run(race):
        race.come("ann", "ann0")
        await race.settle()
        with pytest.raises(Refusal, match="busy"):
            await race.come("bob", "bob0")
        assert not race.slots._waiting
        await race.end("ann0")
        await race.come("bob", "bob1")
        assert race.granted == ["ann0", "bob1"]

    raced(run, 1, turn_s=0.05)


def test_a_body_that_has_just_left_is_passed_over():
    async def run(race):
        race.come("ann", "ann0")
        left, stays = race.come("bob", "bob0"), race.come("cem", "cem0")
        await race.settle()
        left.cancel()  # its task has not run yet
        race.slots.end(race.held.pop("ann0"))
        await race.settle()
        assert race.granted == ["ann0", "cem0"]
        assert stays.done()
        await race.end("cem0")
        assert (race.slots._in_use, race.slots._waiting) == (0, {})

    raced(run, 1)


def test_turns_go_round_however_many_one_worker_asks_for():
    async def run(race):
        for number in range(4):
            race.come("eve", f"eve{number}")
        race.come("ann", "ann0")
        race.come("bob", "bob0")
        await race.settle()
        assert race.slots._waiting
        for name in ("eve0", "ann0", "bob0", "eve1", "eve2"):
            race.now += 0.1
            await race.end(name)
        assert race.granted == ["eve0", "ann0", "bob0", "eve1", "eve2", "eve3"]

    raced(run, 1)


def test_slow_bodies_give_way_to_quick_ones_until_they_have_half():
    async def run(race):
        for number in range(8):
            race.come(f"slow{number}", f"slow{number}", rate=1.0)
            await race.settle()
            race.now += 0.1
        assert len(race.granted) == 8  # nobody else came
        for number in range(6):
            race.come(f"ann{number}", f"ann{number}")
        await race.settle()
        assert race.gone == ["slow7", "slow6", "slow5", "slow4"]
        assert race.granted[8:] == ["ann0", "ann1", "ann2", "ann3"]
        race.come("slow9", "slow9", rate=1.0)  # waits for its turn
        await race.settle()
        await race.end("ann0")
        assert race.granted[12:] == ["ann4"]

    raced(run, 8)


def test_a_worker_with_more_than_its_share_gives_way_even_to_a_slow_one():
    async def run(race):
        for number in range(8):
            race.come("eve", f"eve{number}", rate=1.0)
        for number in range(6):
            race.come("ann", f"ann{number}", rate=1.0)
        await race.settle()
        assert race.granted[8:] == ["ann0", "ann1", "ann2", "ann3"]
        assert len(race.gone) == 4

    raced(run, 8)


def test_who_only_seems_quick_loses_its_slot_and_its_turn():
    async def run(race):
        for number in range(8):
            race.come("eve", f"eve{number}")
        for number in range(2):
            race.come(f"ann{number}", f"ann{number}")
        await race.settle()
        assert race.gone == []  # it may well be over in a moment
        await race.look(2.1)
        assert race.granted[8:] == ["ann0", "ann1"]
        assert len(race.gone) == 2
        race.come("eve", "eve8")
        race.come("bob", "bob0")  # is new, and eve is no longer trusted
        await race.settle()
        assert race.granted[10:] == ["bob0"]
        race.now += WASTED_S
        assert not race.slots._is_wasteful("eve")

    raced(run, 8)


def test_a_body_that_has_come_keeps_its_slot():
    async def run(race):
        for number in range(2):
            race.come("eve", f"eve{number}", rate=1.0)
        await race.settle()
        race.slots.keep(race.held["eve0"])
        race.slots.keep(race.held["eve1"])
        race.come("ann", "ann0")
        await race.look(60)
        assert (race.gone, race.granted) == ([], ["eve0", "eve1"])

    raced(run, 2)


def test_quick_bodies_of_one_address_are_never_thrown_out():
    """All workers of an open run may come from one address; each body is over in a moment."""

    async def run(race):
        for number in range(40):
            race.come("at 127.0.0.1", str(number))
        await race.settle()
        for number in range(40):
            race.now += 0.1
            await race.end(str(number))
        assert race.granted == [str(number) for number in range(40)]
        assert race.gone == []

    raced(run, 8)


def test_what_is_quick_depends_on_what_the_server_can_do():
    """On a busy one all bodies take long, and nobody is to blame."""

    async def run(race):
        race.come("ann", "ann0")
        await race.settle()
        race.now += 8.0
        race.slots.keep(race.held["ann0"])
        await race.end("ann0")
        race.come("bob", "bob0")
        race.come("cid", "cid0")
        await race.settle()
        await race.look(20.0)
        assert race.gone == []
        await race.look(20.0)
        assert race.gone == ["bob0"]

    raced(run, 1)


def test_a_run_keeps_its_share_of_a_pool_however_many_workers_another_has():
    pool, gone = Pool(8), []
    for number in range(8):
        pool.take(f"w{number}", 1, lambda n=number: gone.append(n), run="flooded").ready = True
    for _ in range(4):
        pool.take("ann", 1, lambda: gone.append("ann"), run="other").ready = True
    assert len(gone) == 4
    assert "ann" not in gone
    with pytest.raises(Refusal, match="busy"):  # half each: neither takes more from the other
        pool.take("ann", 1, lambda: None, run="other")
    left = next(n for n in range(8) if n not in gone)
    with pytest.raises(Refusal, match="busy"):
        pool.take(f"w{left}", 1, lambda: None, run="flooded")


def test_the_next_slot_goes_to_the_run_that_has_the_fewest():
    async def scenario():
        slots, granted = Slots(Limits(bodies=4)), []

        async def send(run, who):
            slot = await slots.take(who, 100, rate=1e9, give_way=lambda: None, run=run)
            granted.append(run)
            return slot

        flood = [asyncio.create_task(send("flooded", f"w{n}")) for n in range(12)]
        await asyncio.sleep(0)
        held = [await task for task in flood[:4]]
        other = [asyncio.create_task(send("other", "ann")) for _ in range(6)]
        await asyncio.sleep(0)
        for slot in held:
            slots.end(slot)
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert granted[4:] == ["other", "other", "flooded", "flooded"]
        for task in (*flood, *other):
            task.cancel()

    asyncio.run(scenario())


def test_slow_bodies_of_a_run_give_way_to_another_run():
    async def scenario():
        lost, slots = [], Slots(Limits(bodies=4))
        for number in range(4):
            await slots.take(
                f"w{number}", 10**9, rate=1.0, give_way=lambda: lost.append(1), run="slow"
            )
        for expected in (1, 2):
            await slots.take("ann", 100, rate=1.0, give_way=lambda: None, run="other")
            assert len(lost) == expected
        waiting = asyncio.create_task(
            slots.take("ann", 100, rate=1.0, give_way=lambda: None, run="other")
        )
        await asyncio.sleep(0.01)
        assert not waiting.done()  # each has its half
        waiting.cancel()

    asyncio.run(scenario())
