"""What the CNN's GPU kernels share: the sizes of their tiles, and how they multiply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["ieee", "tf32", "bf16"]

NO_TRITON = (
    "The CNN's GPU kernels need Triton, which comes with torch for CUDA and was not found: "
    "install that, or compute with autograd."
)


@dataclass(frozen=True)
class Tile:
    """How a kernel cuts its product: rows and depth of a block, or rows and columns.

    ``splits`` is the number of sums into which the gradients of a convolution's weights cut the
    positions of a lane, so that few lanes still fill a GPU.
    """

    rows: int
    depth: int
    warps: int = 4
    stages: int = 3
    columns: int = 64  # dense only: the convolutions take all their columns
    splits: int = 1  # weights only


# What a benchmark chose; see benchmarks/kernels_cnn.py.
TILES: dict[str, dict[str, Tile]] = {
    "bf16": {
        "conv1": Tile(128, 16, warps=4, stages=4),
        "conv2": Tile(128, 32, warps=8, stages=4),
        "inputs2": Tile(128, 64, warps=8, stages=2),
        "weights1": Tile(32, 256, warps=8, stages=3, splits=16),
        "weights2": Tile(32, 128, warps=8, stages=4, splits=2),
        "dense": Tile(128, 64, warps=4, stages=4),
    },
    "tf32": {
        "conv1": Tile(256, 16, warps=8, stages=2),
        "conv2": Tile(128, 32, warps=8, stages=3),
        "inputs2": Tile(64, 64, warps=4, stages=1),
        "weights1": Tile(32, 64, warps=4, stages=3, splits=16),
        "weights2": Tile(32, 128, warps=8, stages=1, splits=7),
        "dense": Tile(128, 32, warps=8, stages=3, columns=128),
    },
    "ieee": {
        "conv1": Tile(32, 16, warps=8, stages=1),
        "conv2": Tile(32, 16, warps=8, stages=1),
        "inputs2": Tile(32, 64, warps=8, stages=1),
        "weights1": Tile(16, 64, warps=8, stages=1, splits=16),
        "weights2": Tile(16, 64, warps=8, stages=1, splits=2),
        "dense": Tile(32, 32, warps=4, stages=1, columns=32),
    },
}


def rounding(precision: Precision) -> str:
    """Of float32 factors, as ``tl.dot`` calls it; bfloat16 ones are multiplied as they are."""
    return "tf32" if precision == "tf32" else "ieee"
