"""The convolution's kernels by hand, on the CPU by Triton's interpreter."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch

from anarchic.kernels.tiles_cuda import Tile
from tests.kernels.interpreted import interpreted

conv_cuda = interpreted("anarchic.kernels.conv_cuda")
conv_pack = interpreted("anarchic.kernels.conv_pack_cuda")


def test_the_code_says_which_of_four_was_the_largest() -> None:
    conv = conv_pack.Conv(size=6, channels=4, given=1, outputs=16)
    weight = torch.zeros(16, 1, 5, 5)
    weight[:, 0, 0, 0] = 1.0  # an output is the pixel at its corner
    images = torch.zeros(4, 1, 6, 6)
    for image, (y, x) in enumerate([(0, 0), (0, 1), (1, 0)]):
        images[image, 0, y, x] = 1.0 + image
    packed = conv_pack.pack_images(images[None], conv, torch.float32)
    spread = conv_pack.spread_weights(weight.reshape(1, -1), conv, torch.float32)
    tile = Tile(16, 16)
    out, code = conv_cuda.conv_pool(packed, spread, torch.zeros(1, 16), conv, tile, "ieee")
    assert out[0, :, 0, 0, 5].tolist() == [1.0, 2.0, 3.0, 0.0]
    assert code[0, :, 0, 0, 5].tolist() == [0, 1, 2, 4]  # nothing left of a black image


def test_folding_sums_the_four_places_of_a_weight_in_every_part() -> None:
    conv = conv_pack.Conv(size=6, channels=4, given=1, outputs=16)
    weight = torch.arange(16 * 25, dtype=torch.float32)[None]
    spread = conv_pack.spread_weights(weight, conv, torch.float32)
    folded = torch.empty_like(weight)
    conv_pack.fold_weights(torch.stack([spread, spread], 1), folded, conv)
    assert torch.equal(folded, 8 * weight)
