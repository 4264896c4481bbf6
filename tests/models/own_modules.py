"""Modules that somebody brings."""

from __future__ import annotations

import torch
from torch import nn


class Normed(nn.Module):
    """Two layers with a BatchNorm between them, and a buffer that does not change."""

    def __init__(self, width: int = 4, bias=True, inputs=3, outputs=2):
        super().__init__()
        self.first = nn.Linear(inputs, width, bias=bias)
        self.bn = nn.BatchNorm1d(width)
        self.last = nn.Linear(width, outputs)
        self.register_buffer("mask", torch.ones(width))

    def forward(self, x):
        return self.last(torch.relu(self.bn(self.first(x.flatten(1)))) * self.mask)


def of_digits():
    return Normed(32, inputs=64, outputs=10)


def plain():
    return nn.Linear(2, 2)


def frozen():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    module[0].requires_grad_(False)
    return module


def half():
    return nn.Linear(2, 2).to(torch.bfloat16)


def lazy():
    return nn.LazyLinear(2)


def failing():
    raise ValueError("no data here")


def none():
    return None


instance = Normed(2)
number = 3
