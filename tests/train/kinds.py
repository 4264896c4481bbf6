"""Modules of every kind that people bring, small, and data for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from anarchic.data import Dataset, load

WORKERS = 4


@cache
def digits() -> Dataset:
    return load("digits")


def tokens() -> Dataset:
    """Sequences over 12 tokens; the class is which of three tokens is among them."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(3, 12, (600, 6)), rng.integers(0, 3, 600)
    x[np.arange(600), rng.integers(0, 6, 600)] = y
    x = x.astype(np.uint8)
    return Dataset("tokens", x[:500], y[:500], x[500:], y[500:], 3)


@cache
def plane() -> Dataset:
    """Points, and two smooth functions of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 6)).astype(np.float32)
    y = (x @ rng.normal(size=(6, 2)) + np.sin(x[:, :2])).astype(np.float32)
    return Dataset.of(x, y, name="plane")


@cache
def properties() -> Dataset:
    """Digits with three properties: even, above four, with a loop."""
    data = digits()

    def told(labels):
        found = [labels % 2 == 0, labels > 4, np.isin(labels, (0, 6, 8, 9))]
        return np.stack(found, 1).astype(np.float32)

    test = data.x_test, told(data.y_test)
    return Dataset.of(data.x_train, told(data.y_train), test=test, name="properties")


@cache
def language() -> Dataset:
    """Sentences in which each word decides most of the next: (words, the words after them)."""
    rng = np.random.default_rng(0)
    follows = rng.dirichlet(np.full(12, 0.05), size=12).cumsum(1)
    words = np.zeros((1500, 9), np.int64)
    words[:, 0] = rng.integers(12, size=len(words))
    for place in range(1, 9):
        words[:, place] = (rng.random((len(words), 1)) > follows[words[:, place - 1]]).sum(1)
    words = words.clip(0, 11)
    return Dataset.of(words[:, :-1], words[:, 1:], classes=12, name="language")


def group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(2, channels)


class Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int, norm: Callable[[int], nn.Module]):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = norm(outside), norm(outside)
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), norm(outside)
            )

    def forward(self, x):
        found = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        return functional.relu(self.norm2(self.conv2(found)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Its 18 layers, narrow, and with a first layer for tiny images."""

    def __init__(self, norm: Callable[[int], nn.Module], width: int = 8, classes: int = 10):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, width, 3, 1, 1, bias=False), norm(width)
        widths, blocks, inside = [width * 2**stage for stage in range(4)], [], width
        for stage, outside in enumerate(widths):
            for stride in (1 if stage == 0 else 2, 1):
                blocks.append(Block(inside, outside, stride, norm))
                inside = outside
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inside, classes)

    def forward(self, x):
        x = self.blocks(functional.relu(self.norm(self.conv(x))))
        return self.head(functional.adaptive_avg_pool2d(x, 1).view(x.size(0), -1))


class Rows(nn.Module):
    """An image as a sequence of its rows, through a recurrent layer with dropout of its own."""

    def __init__(self, kind: type[nn.RNNBase]):
        super().__init__()
        self.body = kind(8, 24, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(24, 10)

    def forward(self, x):
        return self.head(self.body(x.squeeze(1))[0][:, -1])


class Attention(nn.Module):
    """A transformer encoder with all its defaults, so with dropout of 0.1."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.place = nn.Parameter(torch.zeros(8, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.layer(self.embed(x.squeeze(1)) + self.place).mean(1))


class Tied(nn.Module):
    """Token embeddings that are also the last layer, and a dictionary as output."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 16)
        self.body = nn.Linear(16, 16)
        self.last = nn.Linear(16, 12, bias=False)
        self.last.weight = self.embed.weight

    def forward(self, tokens):
        hidden = functional.relu(self.body(self.embed(tokens).sum(1)))
        return {"logits": self.last(hidden), "hidden": hidden}


class NextWord(nn.Module):
    """A causal transformer with its default dropout."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(12, 32), nn.Linear(32, 12)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.register_buffer("mask", torch.ones(8, 8).triu(1).bool())

    def forward(self, words):
        return self.out(self.layer(self.words(words), src_mask=self.mask))


def mlp(before: int, after: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(before, 32), nn.ReLU(), nn.Linear(32, after))


def dropped() -> nn.Module:
    layers = [nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10)]
    return nn.Sequential(*layers)


def cnn(norm: Callable[[int], nn.Module]) -> nn.Module:
    body = [nn.Conv2d(1, 8, 3, padding=1), norm(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(128, 10))


def backbone() -> nn.Module:
    """A layer that is not trained, with a norm in eval mode, and a head that is."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU())
    module.requires_grad_(False).eval()
    return nn.Sequential(module, nn.Linear(128, 10))


def averaging() -> nn.Module:
    """BatchNorm whose momentum falls with a counter."""
    layers = [nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32, momentum=None), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(32, 10))


@dataclass(frozen=True)
class Kind:
    """A module, and how it is trained."""

    make: Callable[[], nn.Module]
    data: Callable[[], Dataset] = digits
    options: dict[str, Any] = field(default_factory=dict)
    alone: bool = False  # it is said that visits are computed one after another, in float32
    draws: bool = False
    rounds: int = 6
    lr: float = 0.1
    bound: float = 0.6  # of accuracy, which an untrained model misses
    by_loss: bool = False  # the bound is of the loss, from above


def averaged(**others) -> dict[str, Any]:
    return {"buffers": "average", **others}


KINDS = {
    "MLP": Kind(lambda: mlp(64, 10)),
    "CNN": Kind(lambda: cnn(nn.Identity)),
    "CNN with GroupNorm": Kind(lambda: cnn(group_norm)),
    "CNN with BatchNorm, average": Kind(lambda: cnn(nn.BatchNorm2d), options=averaged()),
    "CNN with BatchNorm, local": Kind(lambda: cnn(nn.BatchNorm2d), options={"buffers": "local"}),
    "BatchNorm with momentum=None": Kind(averaging, options=averaged(), alone=True),
    "ResNet-18 with GroupNorm": Kind(lambda: ResNet18(group_norm), rounds=6, bound=0.3),
    "ResNet-18 with BatchNorm": Kind(
        lambda: ResNet18(nn.BatchNorm2d), options=averaged(), rounds=3
    ),
    "Dropout": Kind(dropped, draws=True, rounds=10),
    "LSTM": Kind(lambda: Rows(nn.LSTM), alone=True, draws=True, rounds=16, lr=0.5, bound=0.5),
    "GRU": Kind(lambda: Rows(nn.GRU), draws=True, rounds=10, lr=0.3, bound=0.5),
    "Transformer with default dropout": Kind(Attention, draws=True, rounds=8, bound=0.4),
    "Embedding with tied weights": Kind(
        Tied, tokens, {"forward": lambda module, x: module(x)["logits"]}, lr=0.1, rounds=8
    ),
    "Frozen backbone": Kind(backbone, rounds=8),
    "Selected parameters": Kind(
        dropped, options={"train": re.compile(r"4\.").match}, draws=True, rounds=12
    ),
    "Regression": Kind(
        lambda: mlp(6, 2), plane, {"loss": functional.mse_loss}, rounds=10, bound=1.0, by_loss=True
    ),
    "Multi-label": Kind(
        lambda: mlp(64, 3),
        properties,
        {"loss": functional.binary_cross_entropy_with_logits},
        rounds=16,
        bound=0.45,
        by_loss=True,
    ),
    "Next token": Kind(NextWord, language, draws=True, rounds=10, bound=0.5),
}


def named(data: Dataset) -> nn.Module:
    """A model that settings name."""
    return averaging()
