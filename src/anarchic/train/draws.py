"""Random numbers of a visit, from a counter instead of a hidden state.

Every number is a function of (run seed, worker, visit, step, stream, position), so it does not
depend on which visits share a batch, on the backend or on the device. The function is
Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), written with
integer operators alone: NumPy arrays and torch tensors both pass through.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from anarchic.core.types import Integers
from anarchic.kernels import find

Array = Any  # int64 or float64, NumPy or torch

MASK = 0xFFFFFFFF
# What a number is for, in a counter's word above the local step: a visit has fewer than 2^24.
STREAMS = {"samples": 0, "augment": 1 << 24, "noise": 2 << 24}


@dataclass(frozen=True)
class Draws:
    """The random numbers of some visits, all of their local steps at once."""

    seed: int | Integers  # of the run, or (lanes,) where they belong to several
    worker: Integers  # (lanes,)
    visit: Integers  # (lanes,)
    steps: int
    put: Callable[[Integers], Array] = np.asarray  # moves counters to where the numbers are wanted
    fast: bool = False  # for NumPy: the same numbers by a compiled loop, where Numba is installed
    in_epochs: bool = False  # samples without replacement, one epoch after another

    def bits(self, stream: Literal["samples", "augment", "noise"], count: int) -> Array:
        """(lanes, steps, count) integers, uniform on 0 .. 2^32 - 1, as int64."""
        blocks = -(-count // 4)
        if self.fast and (draw := find("philox_words")):
            shape = len(self.worker), self.steps, 4 * blocks
            return draw(shape, STREAMS[stream], self.visit, self.worker, self._key())[:, :, :count]
        counter = (
            self.put(np.arange(blocks)[None, None, :]),
            self.put((np.arange(self.steps) | STREAMS[stream])[None, :, None]),
            self.put(self.visit.astype(np.int64)[:, None, None]),
            self.put(self.worker.astype(np.int64)[:, None, None]),
        )
        words = philox(counter, self._key())
        joined = _stack(words).reshape(len(self.worker), self.steps, 4 * blocks)
        return joined[:, :, :count]

    def _key(self) -> tuple[Array, Array]:
        if isinstance(self.seed, int):
            return self.seed & MASK, (self.seed >> 32) & MASK
        seeds = self.seed.astype(np.int64)[:, None, None]
        return self.put(seeds & MASK), self.put((seeds >> 32) & MASK)

    def below(self, bound: Array, stream: Literal["samples", "augment"], count: int) -> Array:
        """Integers uniform on 0 .. bound - 1; the bias of at most bound / 2^32 is left in."""
        return (self.bits(stream, count) * bound) >> 32

    def normal(self, count: int) -> Array:
        """Standard normal numbers, by Box and Muller; NumPy only."""
        bits = self.bits("noise", 2 * count)
        radius = np.sqrt(-2.0 * np.log((bits[..., :count] + 1) / 2.0**32))
        return radius * np.cos(2 * math.pi * (bits[..., count:] / 2.0**32))


def philox(counter: tuple[Array, ...], key: tuple[Array, Array]) -> tuple[Array, ...]:
    """Ten rounds of Philox4x32 on 32-bit words held in int64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        # Products wrap around 64 bits with a sign, and c1 and c3 keep their upper halves: none of
        # it outlives the mask.
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = ((p1 >> 32) ^ c1 ^ k0) & MASK, p1
        c2, c3 = ((p0 >> 32) ^ c3 ^ k1) & MASK, p0
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1 & MASK, c2, c3 & MASK


def _stack(words: tuple[Array, ...]) -> Array:
    if isinstance(words[0], np.ndarray):
        return np.stack(words, axis=-1)
    import torch

    return torch.stack(words, dim=-1)
