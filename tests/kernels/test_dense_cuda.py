"""The dense kernels by hand, on the CPU by Triton's interpreter."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch

from anarchic.kernels.tiles_cuda import Tile
from tests.kernels.interpreted import interpreted

dense_cuda = interpreted("anarchic.kernels.dense_cuda")
TILE = Tile(16, 16, columns=16)
ONE_ROW = torch.tensor([[[1.0, 2.0]]])  # (lanes, rows, depth)
FOUR_COLUMNS = torch.tensor([[[1.0, 0.0, 1.0, -1.0], [0.0, 1.0, 1.0, -1.0]]])


def product(**options: object) -> list[float]:
    out = torch.empty(1, 1, 4)
    dense_cuda.dense(ONE_ROW, FOUR_COLUMNS, out, TILE, "ieee", **options)
    return out.flatten().tolist()


def test_a_product_with_bias_and_relu() -> None:
    assert product() == [1.0, 2.0, 3.0, -3.0]
    assert product(bias=torch.tensor([[0.5, -3.0, 0.0, 4.0]]), relu=True) == [1.5, 0.0, 3.0, 1.0]


def test_what_the_relu_cut_lets_no_gradient_through() -> None:
    assert product(through=torch.tensor([[[5.0, 0.0, 0.1, 0.0]]])) == [1.0, 0.0, 3.0, 0.0]


def test_columns_of_two_channels_are_stored_channel_by_channel() -> None:
    assert product(inner=2) == [1.0, 3.0, 2.0, -3.0]  # positions 0 and 1, channels (1, 2), (3, -3)


def test_the_gradient_of_the_loss_is_the_share_less_the_label() -> None:
    outputs = torch.log(torch.tensor([[[1.0, 3.0], [1.0, 1.0]]]))  # shares 1/4, 3/4 and 1/2, 1/2
    labels = torch.tensor([[1, 0]])
    off = dense_cuda.loss_gradients(outputs, labels, torch.float32)
    torch.testing.assert_close(off, torch.tensor([[[0.125, -0.125], [-0.25, 0.25]]]))
