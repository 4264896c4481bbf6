"""A small PyTorch model, and a training of it."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def net(*more: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), *more, nn.ReLU(), nn.Linear(4, 2))


def train(model: nn.Module, steps: int = 3, optimizer: torch.optim.Optimizer | None = None) -> None:
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=0.1)
    dtype = next(model.parameters()).dtype
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.arange(12, dtype=dtype).reshape(4, 3) / 10 + step
        model(x).square().mean().backward()
        optimizer.step()


def train_and_fail(model: nn.Module) -> None:
    train(model)
    raise KeyError("the disk is full, say")


def values(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: each.detach().float().numpy().copy() for name, each in model.named_parameters()}
