"""The IDX format of MNIST and its relatives.

A big-endian header: two zero bytes, the type of the numbers (8: unsigned bytes), the number of
dimensions, the size of each dimension as an int32; then the numbers.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anarchic.data.files import damaged, read


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes with the given number of dimensions."""
    content = read(path)
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes((0, 0, 8, dimensions)):
        raise damaged(path, f"its first bytes are {content[:4].hex(' ') or 'none'}")
    shape = struct.unpack(f">{dimensions}i", content[4:start])
    if len(content) - start != math.prod(shape):
        sizes = " x ".join(map(str, shape))
        raise damaged(path, f"it announces {sizes} bytes and holds {len(content) - start:,}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
