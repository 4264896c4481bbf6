"""The samples and crops that lanes draw, by Triton kernels: the numbers of ``Draws`` to the bit.

Written with torch's operators, Philox is a hundred launches, and a GPU is done with the numbers of
a round before its host has started half of them.
"""

# Triton is untyped, and kernels are Python only in form.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from typing import Any

from torch import Tensor

from anarchic.errors import ConfigError

try:
    import triton
    import triton.language as tl
except ImportError as missing:
    raise ConfigError(
        "Picks on a GPU need Triton, which comes with torch for CUDA and was not found: install "
        "that, or draw with Draws."
    ) from missing

BLOCK = 128  # counters per program; each gives four numbers


def pick_samples(lanes: Tensor, held: Tensor, steps: int, batch: int, stream: int) -> Tensor:
    """(lanes, steps, batch) samples, each one of those that the lane's worker holds.

    ``lanes`` is (lanes, 6): seed (low and high word), visit, worker, how many samples the worker
    holds, and where they begin in ``held``. ``stream`` is that of the random numbers.
    """
    picked = held.new_empty((len(lanes), steps, batch))
    _launch(_samples, lanes, steps, batch, held, picked, stream)
    return picked


def pick_crops(lanes: Tensor, steps: int, batch: int, stream: int, ways: int) -> Tensor:
    """(lanes, steps, batch, 3): row and column, below ``ways``, and flip of every sample."""
    picked = lanes.new_empty((len(lanes), steps, batch, 3))
    _launch(_crops, lanes, steps, 3 * batch, picked, ways, stream)
    return picked


def _launch(kernel: Any, lanes: Tensor, steps: int, count: int, *arguments: Any) -> None:
    grid = (len(lanes), steps, triton.cdiv(count, 4 * BLOCK))
    kernel[grid](lanes, *arguments, steps, count, BLOCK)


@triton.jit
def _samples(lanes, samples, out, stream, steps, count, BLOCK: tl.constexpr):
    """lanes (., 6), samples (.,) -> out (., steps, count)."""
    words = _words(lanes, stream, BLOCK)
    held = tl.load(lanes + 6 * tl.program_id(0) + 4).to(tl.uint32)
    first = tl.load(lanes + 6 * tl.program_id(0) + 5)
    for word in tl.static_range(4):
        position = 4 * _blocks(BLOCK) + word
        index = first + tl.umulhi(words[word], held).to(tl.int64)
        inside = position < count
        sample = tl.load(samples + index, mask=inside, other=0)
        tl.store(_place(out, steps, count) + position, sample, mask=inside)


@triton.jit
def _crops(lanes, out, ways, stream, steps, count, BLOCK: tl.constexpr):
    """lanes (., 6) -> out (., steps, count / 3, 3): below ways, below ways, below 2."""
    words = _words(lanes, stream, BLOCK)
    for word in tl.static_range(4):
        position = 4 * _blocks(BLOCK) + word
        bound = tl.where(position % 3 == 2, 2, ways).to(tl.uint32)
        value = tl.umulhi(words[word], bound).to(tl.int64)
        tl.store(_place(out, steps, count) + position, value, mask=position < count)


@triton.jit
def _words(lanes, stream, BLOCK: tl.constexpr):
    """Philox4x32-10 at the counters of this program."""
    lane = lanes + 6 * tl.program_id(0)
    zero = tl.zeros((BLOCK,), tl.uint32)
    key0, key1 = tl.load(lane).to(tl.uint32), tl.load(lane + 1).to(tl.uint32)
    visit, worker = tl.load(lane + 2).to(tl.uint32), tl.load(lane + 3).to(tl.uint32)
    step = (tl.program_id(1) | stream).to(tl.uint32)
    return tl.philox_impl(
        _blocks(BLOCK).to(tl.uint32), zero + step, zero + visit, zero + worker, key0, key1, 10
    )


@triton.jit
def _blocks(BLOCK: tl.constexpr):
    return tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def _place(out, steps, count):
    """Where the numbers of this lane and step begin."""
    return out + (tl.program_id(0).to(tl.int64) * steps + tl.program_id(1)) * count
