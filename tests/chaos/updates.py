"""Updates with random directions."""

from __future__ import annotations

import zlib

import numpy as np

from anarchic import Layout, Update, wire


def encoded(layout: Layout, worker: str, id: str, *, base_version: int = 0, named=True) -> bytes:
    rng = np.random.default_rng(zlib.crc32(f"{worker} {id}".encode()))
    direction = rng.standard_normal(layout.dim).astype(np.float32)
    update = Update(worker, base_version, 1, 0.1, direction, id=id)
    return wire.encode_update(layout, update, worker=worker if named else None)
