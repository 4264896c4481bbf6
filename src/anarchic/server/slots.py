"""Fair shares of what all workers need: room for what they send, streams, slots for large bodies.

A key says who asks: a worker, where a token proves it, and otherwise an address. Whoever comes
first may take everything that is free. It has to give some of it back as soon as somebody comes
who has less. Where several runs share a server, each run is given its share first, and its workers
share that.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from anarchic.server.refusals import busy
from anarchic.server.settings import Limits

QUICK_S, QUICK_RATE = 2.0, 16e6  # a quick body takes this long and its bytes at this rate, at most
TIMES_THE_BEST = 4  # or this many times as long as the best took lately, where the server is busy
WASTED_S = 30.0  # how long a key that wasted a slot stands behind the others
LOOK_S = 0.25  # how often slots are looked at while somebody waits for one
FEW = 10_000  # remembered keys below which none is forgotten

Key = tuple[str, str]  # a run ("" in a server of one), and who asks


def network(address: str) -> str:
    """Where an address belongs: itself, or for IPv6 the 64 bits that one customer has."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return str(found.ipv4_mapped or ipaddress.IPv6Address(int(found) >> 64 << 64))


def key_of(worker: str | None, address: str) -> str:
    """Who asks. No worker's name has a space in it."""
    return f"at {network(address)}" if worker is None else worker


@dataclass(eq=False, slots=True)
class Taken:
    """A part of a pool that somebody holds."""

    key: Key
    size: int
    give_way: Callable[[], None]  # called when it is taken back
    ready: bool = False  # whoever holds it has done its part, and waits for the server
    kept: bool = False  # it cannot be taken back any more


class Pool:
    """Something of which there is a limited amount.

    When all is taken, whoever holds most gives way: first with the oldest of what still waits for
    its sender; then, if the others hold less, with the newest of what is ready. That is somebody
    of the run that holds most.
    """

    def __init__(self, room: int, full: str = "Too many bodies are being sent.") -> None:
        self._free, self._full = room, full
        self._held: dict[Key, dict[Taken, None]] = {}  # oldest first
        self._sums: dict[str, dict[Key, int]] = {}  # by run
        self._totals: dict[str, int] = {}

    def take(self, who: str, size: int, give_way: Callable[[], None], *, run: str = "") -> Taken:
        key = (run, who)
        while size > self._free:
            self._take_back(key)
        taken = Taken(key, size, give_way)
        self._held.setdefault(key, {})[taken] = None
        self._add(key, size)
        return taken

    def end(self, taken: Taken) -> None:
        """Give back what was taken, if that has not been done."""
        held = self._held.get(taken.key)
        if held is None or taken not in held:
            return
        del held[taken]
        self._add(taken.key, -taken.size)
        if not held:
            run = taken.key[0]
            del self._held[taken.key], self._sums[run][taken.key]
            if not self._sums[run]:
                del self._sums[run], self._totals[run]

    def _add(self, key: Key, size: int) -> None:
        run = key[0]
        sums = self._sums.setdefault(run, {})
        sums[key] = sums.get(key, 0) + size
        self._totals[run] = self._totals.get(run, 0) + size
        self._free -= size

    def _take_back(self, key: Key) -> None:
        run = _with_most(self._totals, key[0])
        most = _with_most(self._sums.get(run, {}), key)
        held = self._held.get(most, {})
        last = next((taken for taken in held if not taken.ready), None)
        if last is None and most != key:
            last = next((taken for taken in reversed(held) if not taken.kept), None)
        if last is None:
            raise busy(1.0, self._full)
        self.end(last)
        last.give_way()


K = TypeVar("K")


def _with_most(held: Mapping[K, int], asks: K) -> K:
    """Who holds most; whoever asks, if nobody holds more."""
    most = max(held, key=held.__getitem__, default=asks)
    return asks if held.get(most, 0) == held.get(asks, 0) else most


@dataclass(eq=False, slots=True)
class Slot:
    """What a large body needs while its rest is read, checked and stored."""

    key: Key
    length: int
    quick: bool  # what has come of the body so far came quickly
    give_way: Callable[[], None]  # called when the slot is taken back
    granted: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    since: float = 0.0  # when it was granted
    keeps: bool = False  # the body has come as a whole


class Slots:
    """Slots for large bodies, granted in turn to all who wait.

    The next slot goes to the run that has the fewest, there to the key that has the fewest and had
    its last turn longest ago; those that wasted one lately come last. A body that is not quick can
    lose its slot while it is still coming: if its run or key has more than its share and somebody
    with less waits, or if slow bodies have more than half of the slots and a quick one waits.
    Otherwise slow senders could hold all slots.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._turn_s, self._clock = limits.bodies, limits.turn_s, clock
        self._held: dict[Key, list[Slot]] = {}
        self._per_run: Counter[str] = Counter()  # of those that are held
        self._in_use = 0
        self._waiting: dict[Key, list[Slot]] = {}
        self._last_turn: dict[Key, float] = {}  # when a key was granted a slot
        self._wasted: dict[Key, float] = {}  # when a key wasted a slot
        self._best = 0.0  # seconds per byte of the best bodies lately
        self._looking: asyncio.TimerHandle | None = None

    async def take(
        self, who: str, length: int, *, rate: float, give_way: Callable[[], None], run: str = ""
    ) -> Slot:
        """A slot, as soon as it is this key's turn; ``end`` gives it back.

        ``rate`` is that of the first piece. The start of a connection is slower than what follows,
        so a body is quick if it would take twice the time.
        """
        key = (run, who)
        slot = Slot(key, length, length / rate <= 2 * self._quick_s(length), give_way)
        self._waiting.setdefault(key, []).append(slot)
        try:
            self._share_out()
            async with asyncio.timeout(self._turn_s):
                await slot.granted
        except TimeoutError:
            self.end(slot)
            raise busy(5.0) from None
        except BaseException:
            self.end(slot)
            raise
        return slot

    def keep(self, slot: Slot) -> None:
        """The body has come as a whole, and can no longer lose its slot."""
        slot.keeps = True
        took = (self._clock() - slot.since) / slot.length
        self._best = min(took, 1.1 * self._best or took)

    def end(self, slot: Slot, *, wasted: bool = False) -> None:
        """The body is stored or refused. It was ``wasted`` if it was no update after all."""
        if wasted:
            self._remember_waste(slot.key)
        self._remove(slot)
        self._share_out()

    def _remove(self, slot: Slot) -> None:
        for slots in (self._waiting, self._held):
            same = slots.get(slot.key, [])
            if slot in same:
                same.remove(slot)
                if slots is self._held:
                    self._count(slot, -1)
                if not same:
                    del slots[slot.key]

    def _count(self, slot: Slot, change: int) -> None:
        run = slot.key[0]
        self._in_use += change
        self._per_run[run] += change
        if not self._per_run[run]:
            del self._per_run[run]

    def _remember_waste(self, key: Key) -> None:
        self._wasted[key] = self._clock()
        if len(self._wasted) > FEW:
            self._wasted = {key: self._wasted[key] for key in self._held if key in self._wasted}

    def _share_out(self) -> None:
        while self._grant_one():
            pass
        if self._waiting and self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _grant_one(self) -> bool:
        """Grant the next body a slot that is free or can be taken back; whether there was one."""
        if self._in_use < self._most:
            found = next(iter(self._in_turn()), None)
        else:
            slow = [s for same in self._held.values() for s in same if self._is_slow(s)]
            turns = self._in_turn() if slow else []
            found = next((s for s in turns if self._take_back(s, slow)), None)
        if found is not None:
            self._grant(found)
        return found is not None

    def _grant(self, slot: Slot) -> None:
        self._waiting[slot.key].remove(slot)
        if not self._waiting[slot.key]:
            del self._waiting[slot.key]
        self._held.setdefault(slot.key, []).append(slot)
        self._count(slot, 1)
        slot.since = self._last_turn[slot.key] = self._clock()
        slot.granted.set_result(None)
        if len(self._last_turn) > FEW:
            self._last_turn = {key: self._last_turn[key] for key in self._held}

    def _look(self) -> None:
        self._looking = None
        self._share_out()

    def _in_turn(self) -> list[Slot]:
        """The first of every key that waits, and its first quick one, in the order of turns."""
        if not self._waiting:
            return []
        found: list[Slot] = []
        full = self._in_use >= self._most
        for key in sorted(self._waiting, key=self._turn):
            # One that has just been cancelled is removed when its task runs.
            same = [slot for slot in self._waiting[key] if not slot.granted.done()]
            quick = [slot for slot in same if slot.quick] if full else []
            found += [*same[:1], *quick[:1]]
        return found

    def _turn(self, key: Key) -> tuple[bool, int, int, float]:
        held, last = len(self._held.get(key, ())), self._last_turn.get(key, 0.0)
        return self._is_wasteful(key), self._per_run[key[0]], held, last

    def _unfair(self, wanted: Slot, slow: list[Slot]) -> list[Slot]:
        """Those of slow bodies that are beyond the share of their run, or key, to its cost."""
        asking = self._held.keys() | self._waiting.keys()
        run = wanted.key[0]
        share = max(1, self._most // len({run for run, _ in asking}))
        if self._per_run[run] < share:
            found = [slot for slot in slow if self._per_run[slot.key[0]] > share]
            if found:
                return found
        share = max(1, share // sum(key[0] == run for key in asking))
        if len(self._held.get(wanted.key, ())) >= share:
            return []
        return [s for s in slow if s.key[0] == run and len(self._held[s.key]) > share]

    def _take_back(self, wanted: Slot, slow: list[Slot]) -> bool:
        """Take a slot from a slow body, if that is fair."""
        found = self._unfair(wanted, slow)
        quick = wanted.quick and not self._is_wasteful(wanted.key)
        if not found and quick and len(slow) > self._most // 2:
            found = slow
        if not found:
            return False
        last = max(found, key=lambda s: (*self._turn(s.key)[:3], s.since))
        if last.quick:  # it had seemed to be
            self._remember_waste(last.key)
        self._remove(last)
        last.give_way()
        return True

    def _is_slow(self, slot: Slot) -> bool:
        """Whether this body may lose its slot."""
        if slot.keeps:
            return False
        if not slot.quick or self._is_wasteful(slot.key):
            return True
        return self._clock() - slot.since > self._quick_s(slot.length)

    def _quick_s(self, length: int) -> float:
        """How long a quick body may take."""
        return max(QUICK_S + length / QUICK_RATE, TIMES_THE_BEST * self._best * length)

    def _is_wasteful(self, key: Key) -> bool:
        since = self._wasted.get(key)
        if since is None:
            return False
        if self._clock() - since < WASTED_S:
            return True
        del self._wasted[key]
        return False
