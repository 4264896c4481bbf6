"""Crops by the kernel against torch's gather, on the CPU by Triton's interpreter."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch

from anarchic.train import torch_data
from tests.kernels.interpreted import interpreted

crops_cuda = interpreted("anarchic.kernels.crops_cuda")


def test_crops_are_those_of_torch() -> None:
    torch.manual_seed(0)
    data = torch_data.padded(torch.randn(5, 3, 20, 24))
    index = torch.tensor([4, 0, 0, 2])
    crops = torch.tensor([[0, 8, 0], [8, 0, 1], [4, 4, 1], [3, 5, 0]])
    want = torch_data.crop_and_flip(data, index, crops)
    assert torch.equal(
        crops_cuda.crop_and_flip(data, index, crops, torch.float32, torch_data.PAD), want
    )
    rounded = crops_cuda.crop_and_flip(data, index, crops, torch.bfloat16, torch_data.PAD)
    assert torch.equal(rounded, want.bfloat16())


def test_a_flip_mirrors_the_columns() -> None:
    data = torch_data.padded(torch.arange(1.0, 5).reshape(1, 1, 2, 2))
    crops = torch.tensor([[4, 4, 1]])  # nothing moved
    got = crops_cuda.crop_and_flip(data, torch.tensor([0]), crops, torch.float32, torch_data.PAD)
    assert got[0, 0].tolist() == [[2.0, 1.0], [4.0, 3.0]]
