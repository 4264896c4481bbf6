"""Random words of many visits by a compiled loop; twin: ``train.draws.philox``."""

from __future__ import annotations

from typing import Any

from anarchic.kernels.compiled import compiled

_MASK = 0xFFFFFFFF


@compiled
def fill_words(words: Any, stream: int, visit: Any, worker: Any, low: Any, high: Any) -> None:
    """Philox4x32-10 of one counter after another, into ``words`` (lanes, steps, 4 * blocks).

    In NumPy these are a hundred calls, which cost more than the numbers.
    """
    for lane in range(words.shape[0]):
        for step in range(words.shape[1]):
            for first in range(0, words.shape[2], 4):
                c0, c1, c2, c3 = first // 4, step | stream, visit[lane], worker[lane]
                k0, k1 = low[lane], high[lane]
                for _ in range(10):
                    p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
                    c0, c1 = ((p1 >> 32) ^ c1 ^ k0) & _MASK, p1
                    c2, c3 = ((p0 >> 32) ^ c3 ^ k1) & _MASK, p0
                    k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
                words[lane, step, first], words[lane, step, first + 1] = c0, c1 & _MASK
                words[lane, step, first + 2], words[lane, step, first + 3] = c2, c3 & _MASK
