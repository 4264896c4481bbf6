"""Gradients of the paper's CNN for many lanes at once, on a GPU.

A lane has its own parameters and its own batch, so that every layer is a batch of small problems:
``conv_cuda`` and ``dense_cuda`` have the kernels, which are called here in order, forward and back.
Every sum has a fixed order, whatever the number of lanes: gradients repeat bit for bit.
"""

# Torch leaves Tensor.unflatten untyped.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from anarchic.errors import ConfigError
from anarchic.kernels import Shapes, slices_of
from anarchic.kernels.conv_cuda import conv_pool, input_gradients, weight_gradients
from anarchic.kernels.conv_pack_cuda import Conv, fold_weights, pack_images, spread_weights
from anarchic.kernels.dense_cuda import dense, loss_gradients
from anarchic.kernels.tiles_cuda import TILES, Precision

CONV1, CONV2, DENSE1, DENSE2 = 32, 64, 512, 128  # outputs of the layers, as in models.cnn


@dataclass(frozen=True)
class Sizes:
    """The network that fits the inputs, and where its tensors lie in the flat vector."""

    channels: int
    size: int
    classes: int

    @staticmethod
    def of(shapes: Shapes, height: int, width: int) -> Sizes:
        """From the shapes of the network's tensors, and the size of its images."""
        try:
            channels, classes = shapes["conv1.weight"][1], shapes["dense3.weight"][0]
        except KeyError:
            channels = classes = 0
        found = Sizes(channels, height, classes)
        if height != width or height < 16 or found.shapes != shapes:
            raise ConfigError(
                f"No cnn for images of {height}x{width} has tensors {dict(shapes)}: images must be "
                "square, 16x16 or more, and the tensors those of models.cnn for them."
            )
        return found

    @cached_property
    def conv1(self) -> Conv:
        return Conv(self.size, -(-self.channels // 4) * 4, self.channels, CONV1)

    @cached_property
    def conv2(self) -> Conv:
        return Conv(self.conv1.pooled, CONV1, CONV1, CONV2)

    @property
    def left(self) -> int:
        """Positions that remain after the second pooling."""
        return self.conv2.pooled**2

    @cached_property
    def shapes(self) -> Shapes:
        """In the order of the flat vector, which is that of the names."""
        weights: dict[str, tuple[int, ...]] = {
            "conv1": (CONV1, self.channels, 5, 5),
            "conv2": (CONV2, CONV1, 5, 5),
            "dense1": (DENSE1, CONV2 * self.left),
            "dense2": (DENSE2, DENSE1),
            "dense3": (self.classes, DENSE2),
        }
        tensors = {f"{name}.weight": shape for name, shape in weights.items()}
        tensors |= {f"{name}.bias": shape[:1] for name, shape in weights.items()}
        return dict(sorted(tensors.items()))

    @cached_property
    def slices(self) -> dict[str, slice]:
        return slices_of(self.shapes)

    def part(self, matrix: Tensor, name: str) -> Tensor:
        """The columns of one tensor in a (lanes, dim) matrix, as a view."""
        return matrix[:, self.slices[name]]


def lane_gradients(
    params: Tensor, x: Tensor, y: Tensor, *, shapes: Shapes, precision: Precision
) -> Tensor:
    """Gradients of the mean cross-entropy: (lanes, dim), float32.

    ``params`` is (lanes, dim) float32 with contiguous rows, ``x`` (lanes, batch, channels, size,
    size) and ``y`` (lanes, batch). With "bf16" activations and factors are bfloat16; with "tf32"
    and "ieee" they are float32, multiplied so. Sums are float32 in all three.
    """
    if precision not in TILES:
        raise ConfigError(f"There is no precision {precision!r}; there are {', '.join(TILES)}.")
    return Passes(Sizes.of(shapes, *x.shape[3:]), precision, params).gradients(x, y)


class Passes:
    """The forward and the backward pass of every lane, each layer a kernel or two."""

    def __init__(self, sizes: Sizes, precision: Precision, params: Tensor) -> None:
        self.sizes, self.precision, self.params = sizes, precision, params
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.tiles = TILES[precision]
        self.out = torch.empty_like(params, memory_format=torch.contiguous_format)

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        one, two = self.sizes.conv1, self.sizes.conv2
        images = pack_images(x, one, self.dtype)
        spread1, spread2 = self.spread("conv1", one), self.spread("conv2", two)
        seen1, code1 = self.convolve(images, spread1, "conv1", one)
        seen2, code2 = self.convolve(seen1, spread2, "conv2", two)
        back2 = self.dense_layers(seen2.flatten(2), y).view_as(seen2)
        self.weights(seen1, back2, code2, "conv2", two)
        back1 = input_gradients(back2, code2, spread2, two, self.tiles["inputs2"], self.precision)
        self.weights(images, back1, code1, "conv1", one)
        return self.out

    def dense_layers(self, seen: Tensor, y: Tensor) -> Tensor:
        """The three dense layers and the loss: the gradient of what they saw, (y, x, c) inside."""
        sizes, part = self.sizes, self.sizes.part
        first = part(self.params, "dense1.weight").unflatten(1, (DENSE1, CONV2, sizes.left))
        first = first.transpose(2, 3).to(self.dtype, memory_format=torch.contiguous_format)
        w1 = first.flatten(2)
        w2 = part(self.params, "dense2.weight").unflatten(1, (DENSE2, DENSE1))
        w3 = part(self.params, "dense3.weight").unflatten(1, (sizes.classes, DENSE2))
        hidden1 = self.product(seen, w1.mT, bias="dense1.bias")
        hidden2 = self.product(hidden1, w2.mT, bias="dense2.bias")
        outputs = self.product(hidden2, w3.mT, bias="dense3.bias", relu=False)
        off3 = loss_gradients(outputs, y, self.dtype)
        off2 = self.product(off3, w3, through=hidden2)
        off1 = self.product(off2, w2, through=hidden1)
        for name, off, inputs in (
            ("dense3", off3, hidden2),
            ("dense2", off2, hidden1),
            ("dense1", off1, seen),
        ):
            torch.sum(off, 1, dtype=torch.float32, out=part(self.out, f"{name}.bias"))
            into = part(self.out, f"{name}.weight").unflatten(1, (off.shape[2], -1))
            inner = CONV2 if name == "dense1" else 1
            dense(off.mT, inputs, into, self.tiles["dense"], self.precision, inner=inner)
        return self.product(off1, w1)

    def product(
        self,
        a: Tensor,
        b: Tensor,
        *,
        bias: str = "",
        relu: bool = True,
        through: Tensor | None = None,
    ) -> Tensor:
        """a @ b of every lane, with a bias and a ReLU, or back through the ReLU of ``through``."""
        last = bool(bias) and not relu
        dtype = torch.float32 if last else self.dtype
        out = a.new_empty((*a.shape[:2], b.shape[2]), dtype=dtype)
        added = self.sizes.part(self.params, bias) if bias else None
        dense(
            a,
            b,
            out,
            self.tiles["dense"],
            self.precision,
            bias=added,
            relu=relu and bool(bias),
            through=through,
        )
        return out

    def spread(self, name: str, conv: Conv) -> Tensor:
        return spread_weights(self.sizes.part(self.params, f"{name}.weight"), conv, self.dtype)

    def convolve(
        self, images: Tensor, spread: Tensor, name: str, conv: Conv
    ) -> tuple[Tensor, Tensor]:
        bias = self.sizes.part(self.params, f"{name}.bias")
        return conv_pool(images, spread, bias, conv, self.tiles[name], self.precision)

    def weights(self, images: Tensor, back: Tensor, code: Tensor, name: str, conv: Conv) -> None:
        kernel = f"weights{name[-1]}"
        tile = self.tiles[kernel]
        parts, bias = weight_gradients(images, back, code, conv, tile, self.precision)
        torch.sum(bias, 1, out=self.sizes.part(self.out, f"{name}.bias"))
        fold_weights(parts, self.sizes.part(self.out, f"{name}.weight"), conv)
