"""A collector as a queue: the formulas, and the same queue simulated.

A collector serves ``places`` updates at the same time; at most ``room`` more may wait, first come,
first served. If it is full, an update is refused and comes again later. Updates of many workers
arrive as a Poisson process: the superposition of many sparse renewal processes is close to one.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Queue:
    """What a collector is to the formulas.

    ``service_s`` is the mean time an update holds a place; ``variability`` is the squared
    coefficient of variation of that time: 0 if it is always the same, 1 if exponential.
    """

    places: int
    room: int
    service_s: float
    variability: float = 1.0

    @property
    def capacity(self) -> float:
        """Updates per second with every place taken."""
        return self.places / self.service_s

    def utilisation(self, rate: float) -> float:
        return rate / self.capacity

    def share_waiting(self, rate: float) -> float:
        """Of updates that find every place taken; exact for exponential service."""
        return erlang_c(self.places, rate * self.service_s)

    def wait_s(self, rate: float) -> float:
        """Mean wait for a place, with unlimited room and Poisson arrivals.

        Allen and Cunneen's approximation, W = C(c, a) / (c mu - lambda) * (1 + scv) / 2 with
        Erlang's C, whose 1/2 (the gain of constant over exponential service) is corrected as by
        Cosmetatos: with several places and little load it is less. Exact for exponential service,
        and for any in a single place, where it is Pollaczek and Khinchine's formula.
        """
        if rate >= self.capacity:
            return float("inf")
        exponential = self.share_waiting(rate) / (self.capacity - rate)
        constant = (1 + self._crowding(rate)) / 2
        return exponential * (self.variability + (1 - self.variability) * constant)

    def _crowding(self, rate: float) -> float:
        load, c = self.utilisation(rate), self.places
        return (1 - load) * (c - 1) * (math.sqrt(4 + 5 * c) - 2) / (16 * load * c)

    def refused(self, rate: float) -> float:
        """Share of updates that find no room.

        Exact for exponential service (M/M/c/K). Otherwise the room is stretched by
        2 / (1 + scv), about as much as the queue is shorter.
        """
        stretched = self.room * 2 / (1 + self.variability)
        return finite_room(self.places, stretched, rate * self.service_s)

    def tries(self, rate: float) -> float:
        """Tries an update needs when the refused come again, much later, until they are taken.

        The rate of tries x solves x = rate + x * refused(x); without a solution there are
        infinitely many.
        """
        if rate >= self.capacity:
            return float("inf")
        tried = rate
        for _ in range(10_000):
            more = rate / (1 - self.refused(tried))
            if more - tried < 1e-9 * rate:
                break
            tried = more
        return tried / rate


def erlang_b(places: int, offered: float) -> float:
    """Share refused where nobody may wait; ``offered`` is arrival rate times service time."""
    blocked = 1.0
    for place in range(1, places + 1):
        blocked = offered * blocked / (place + offered * blocked)
    return blocked


def erlang_c(places: int, offered: float) -> float:
    """Share that has to wait where everybody may."""
    if offered >= places:
        return 1.0
    blocked, load = erlang_b(places, offered), offered / places
    return blocked / (1 - load * (1 - blocked))


def finite_room(places: int, room: float, offered: float) -> float:
    """Share refused where ``room`` may wait: Erlang's B continued by a geometric tail."""
    blocked, load = erlang_b(places, offered), offered / places
    if abs(load - 1) < 1e-9:
        return blocked / (1 + blocked * room)
    if load > 1:  # the same, divided by load^room, which would overflow
        fade: float = load**-room
        return blocked / (fade + blocked * (1 - fade) / (1 - 1 / load))
    full: float = load**room
    queued = load * (1 - full) / (1 - load)  # load + load^2 + ... + load^room
    return blocked * full / (1 + blocked * queued)


@dataclass(frozen=True)
class Served:
    """What became of the updates, in the order in which they first came."""

    arrived_s: Floats  # when the try came that was taken
    started_s: Floats  # when it got its place
    done_s: Floats
    refusals: int

    @property
    def wait_s(self) -> Floats:
        return self.started_s - self.arrived_s


def serve(
    queue: Queue,
    arrivals_s: Floats,
    rng: Generator,
    *,
    again_s: Callable[[int], float] | None = None,
) -> Served:
    """Send updates through a queue; service times are gamma distributed.

    A refused update comes again ``again_s(n)`` seconds after its refusal number n (from 0), or is
    dropped where that is None; dropped updates are left out of the answer.
    """
    service_s = draw_service(queue, rng, len(arrivals_s)).tolist()
    free_s = [0.0] * queue.places  # a heap: when each place is free
    waiting: deque[float] = deque()  # when those who wait will start: in order, as they came
    later: list[tuple[float, int, int]] = []  # a heap of (when, update, refusals so far)
    taken: list[tuple[int, float, float]] = []
    refusals = 0

    def offer(now: float, update: int, failures: int) -> None:
        nonlocal refusals
        while waiting and waiting[0] <= now:
            waiting.popleft()
        start = free_s[0]
        if start <= now:
            start = now
        elif len(waiting) < queue.room:
            waiting.append(start)
        else:
            refusals += 1
            if again_s is not None:
                heapq.heappush(later, (now + again_s(failures), update, failures + 1))
            return
        heapq.heapreplace(free_s, start + service_s[update])
        taken.append((update, now, start))

    for update, now in enumerate(arrivals_s.tolist()):
        while later and later[0][0] <= now:
            offer(*heapq.heappop(later))
        offer(now, update, 0)
    while later:
        offer(*heapq.heappop(later))
    taken.sort()
    rows = np.array(taken).reshape(-1, 3)
    done = rows[:, 2] + np.array(service_s)[rows[:, 0].astype(np.int64)]
    return Served(rows[:, 1], rows[:, 2], done, refusals)


def draw_service(queue: Queue, rng: Generator, count: int) -> Floats:
    if queue.variability == 0:
        return np.full(count, queue.service_s)
    shape = 1 / queue.variability
    return rng.gamma(shape, queue.service_s / shape, count)
