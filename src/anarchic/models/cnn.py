"""The paper's convolutional network for CIFAR-10."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from anarchic.errors import ConfigError


class Cnn(nn.Module):
    """Two 5x5 convolutions (32, 64), each with ReLU and 2x2 max pooling, then 512, 128, classes.

    The paper's table says 1024 x 512 for the first dense layer, which fits 28x28 inputs; with
    CIFAR-10's 32x32 it is 1600 x 512.
    """

    kernels = "cnn"  # the fast forms of its gradient in anarchic.kernels

    def __init__(self, channels: int, size: int, classes: int) -> None:
        super().__init__()
        left = ((size - 4) // 2 - 4) // 2
        if left < 1:
            raise ConfigError(f"cnn needs images of 16x16 or more, got {size}x{size}: use mlp.")
        self.conv1 = nn.Conv2d(channels, 32, 5)
        self.conv2 = nn.Conv2d(32, 64, 5)
        self.dense1 = nn.Linear(64 * left * left, 512)
        self.dense2 = nn.Linear(512, 128)
        self.dense3 = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        # ReLU after pooling is the same with a quarter of the work: both keep the order of numbers.
        x = relu(max_pool2d(self.conv1(x), 2))
        x = relu(max_pool2d(self.conv2(x), 2)).flatten(1)
        x = relu(self.dense2(relu(self.dense1(x))))
        out: Tensor = self.dense3(x)
        return out
