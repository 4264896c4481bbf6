"""The CNN's kernels against autograd, on the CPU by Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from torch import Tensor

from anarchic.core.types import Layout
from anarchic.errors import ConfigError
from anarchic.models.cnn import Cnn
from anarchic.train.engines import Objective, choose_engine, cross_entropy
from tests.kernels.interpreted import interpreted

cnn_cuda = interpreted("anarchic.kernels.cnn_cuda")


@pytest.fixture(autouse=True)
def _few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreted program costs milliseconds: large tiles and two sums are as good a test."""
    few = {name: replace(tile, splits=2) for name, tile in cnn_cuda.TILES["bf16"].items()}
    for precision in ("ieee", "bf16"):
        monkeypatch.setitem(cnn_cuda.TILES, precision, few)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channels", "size", "classes", "batch"),
    [
        (3, 16, 10, 3),
        (1, 17, 7, 3),  # the first pooling drops a row
        (5, 18, 3, 3),  # the second does; two groups of channels
        (3, 28, 10, 1),
        (3, 32, 10, 1),
    ],
)
def test_gradients_are_those_of_autograd(
    channels: int, size: int, classes: int, batch: int
) -> None:
    params, x, y, want = case(channels, size, classes, lanes=2, batch=batch)
    sizes = cnn_cuda.Sizes(channels, size, classes)
    got = cnn_cuda.lane_gradients(params, x, y, shapes=sizes.shapes, precision="ieee")
    for name, where in sizes.slices.items():
        assert away(got[:, where], want[:, where]) < 1e-5, name


@pytest.mark.slow
def test_bfloat16_gradients_are_near_those_of_autograd() -> None:
    params, x, y, want = case(3, 16, 10, lanes=1, batch=3)
    shapes = cnn_cuda.Sizes(3, 16, 10).shapes
    got = cnn_cuda.lane_gradients(params, x.bfloat16(), y, shapes=shapes, precision="bf16")
    assert got.dtype == torch.float32
    assert away(got, want) < 5e-2  # now and then a value close to zero changes sides


@pytest.mark.parametrize(
    ("shapes", "size"),
    [({"weight": (10, 100)}, 16), (cnn_cuda.Sizes(3, 20, 10).shapes, 16)],
    ids=["other tensors", "other images"],
)
def test_tensors_that_fit_no_network_are_refused(shapes: Any, size: int) -> None:
    x, y = torch.zeros(1, 2, 3, size, size), torch.zeros(1, 2)
    with pytest.raises(ConfigError, match="No cnn for images of 16x16 has tensors"):
        cnn_cuda.lane_gradients(torch.zeros(1, 1000), x, y, shapes=shapes, precision="ieee")


def test_the_tensors_are_those_of_the_model() -> None:
    want = {name: tuple(tensor.shape) for name, tensor in Cnn(3, 32, 10).named_parameters()}
    assert cnn_cuda.Sizes(3, 32, 10).shapes == want


@pytest.mark.slow
def test_a_gpu_gets_the_kernels_and_double_precision_does_not() -> None:
    """The engine is chosen for a GPU, and its kernels interpreted here."""
    module, gpu = Cnn(3, 16, 10), torch.device("cuda")
    shapes = {name: (tensor.shape, "F32") for name, tensor in module.named_parameters()}
    objective = Objective(module, cross_entropy, Layout.of(shapes))
    engine = choose_engine(objective, gpu, "ieee")
    assert engine.function.func is cnn_cuda.lane_gradients
    assert (engine.max_lanes, engine.threads) == (None, 1)
    params, x, y, want = case(3, 16, 10, lanes=1, batch=3)
    assert away(engine.function(params, x, y), want) < 1e-5
    wide = {name: (shape, "F64") for name, (shape, _) in shapes.items()}
    double = replace(objective, layout=Layout.of(wide))
    assert choose_engine(double, gpu, "ieee").function == double.all_at_once


def case(
    channels: int, size: int, classes: int, *, lanes: int, batch: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Parameters that lead a larger matrix, inputs, labels and the gradients by autograd."""
    torch.manual_seed(size)
    x = torch.randn(lanes, batch, channels, size, size)
    y = torch.randint(classes, (lanes, batch))
    rows, gradients = [], []
    for lane in range(lanes):
        module = Cnn(channels, size, classes)
        tensors = [tensor for _, tensor in sorted(module.named_parameters())]
        loss = cross_entropy(module(x[lane]), y[lane])
        rows.append(torch.cat([tensor.detach().flatten() for tensor in tensors]))
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, tensors)]))
    params = torch.stack([*rows, torch.full_like(rows[0], torch.nan)])[:lanes]
    return params, x, y, torch.stack(gradients)


def away(got: Tensor, want: Tensor) -> float:
    return float((got - want).norm() / want.norm())
