"""Small models of every kind, each with data on which an untrained one fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from anarchic.data import Dataset, load

WORDS = 12  # of the language


@dataclass(frozen=True)
class Kind:
    """A model and what it is trained on; ``least`` accuracy or ``most`` loss is what it must reach.

    ``task`` are further arguments of ``TorchTask``.
    """

    name: str
    module: Callable[[], nn.Module]
    data: Callable[[], Dataset]
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy
    least: float | None = None  # accuracy
    most: float | None = None  # loss
    lr: float = 0.1
    rounds: int = 30
    task: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


@cache
def images() -> Dataset:
    """The embedded digits, 8 by 8."""
    return load("digits")


@cache
def rows() -> Dataset:
    """The same, each image as a sequence of eight rows."""
    data = images()
    x, x_test = (each.reshape(-1, 8, 8) for each in (data.x_train, data.x_test))
    return Dataset.of(x, data.y_train, test=(x_test, data.y_test), name="rows of digits")


@cache
def plane() -> Dataset:
    """Points and a smooth function of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 6)).astype(np.float32)
    y = (x @ rng.normal(size=(6, 2)) + np.sin(x[:, :2])).astype(np.float32)
    return Dataset.of(x, y, name="plane")


@cache
def properties() -> Dataset:
    """Digits with four properties: even, above four, a multiple of three, with a loop."""
    data = images()

    def told(labels: Any) -> Any:
        loop = np.isin(labels, (0, 6, 8, 9))
        return np.stack([labels % 2 == 0, labels > 4, labels % 3 == 0, loop], 1).astype(np.float32)

    test = data.x_test, told(data.y_test)
    return Dataset.of(data.x_train, told(data.y_train), test=test, name="properties")


@cache
def language() -> Dataset:
    """Sentences in which each word decides most of the next: (words, the words after them)."""
    rng = np.random.default_rng(0)
    follows = rng.dirichlet(np.full(WORDS, 0.05), size=WORDS)
    words = np.zeros((1500, 9), np.int64)
    words[:, 0] = rng.integers(WORDS, size=len(words))
    for place in range(1, 9):
        chances = follows[words[:, place - 1]].cumsum(1)
        words[:, place] = (rng.random((len(words), 1)) > chances).sum(1).clip(0, WORDS - 1)
    return Dataset.of(words[:, :-1], words[:, 1:], classes=WORDS, name="language")


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def dropout() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10)
    )


def cnn(norm: Callable[[int], nn.Module] = nn.Identity) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), norm(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), norm(16), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


class Block(nn.Module):
    """A basic block of a ResNet."""

    def __init__(self, before: int, after: int, stride: int, norm: Callable[[int], nn.Module]):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([norm(after), norm(after)])
        same = before == after and stride == 1
        self.short = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(y)) + self.short(x))


def resnet18(norm: Callable[[int], nn.Module]) -> nn.Module:
    """The eight blocks of ResNet-18, with an eighth of its channels."""
    widths, blocks, before = (8, 16, 32, 64), [], 8
    for stage, width in enumerate(widths):
        for place in range(2):
            blocks.append(Block(before, width, 2 if stage and not place else 1, norm))
            before = width
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), *blocks, *pool)


def groups(channels: int) -> nn.Module:
    return nn.GroupNorm(2, channels)


class Recurrent(nn.Module):
    """A recurrent layer over the rows of an image."""

    def __init__(self, layer: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.layer, self.out = layer(8, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.layer(x)
        return self.out(states[:, -1])


class Transformer(nn.Module):
    """A layer of torch's own, with its default dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(8, 32), nn.Linear(32, 10)
        self.place = nn.Parameter(torch.zeros(8, 32))
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(self.into(x) + self.place).mean(1))


class Tied(nn.Module):
    """Predicts the next word; the embedding is used for both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.inner = nn.Embedding(WORDS, 24), nn.Linear(24, 24)
        self.out = nn.Linear(24, WORDS, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.inner(self.words(x)))


class NextWord(nn.Module):
    """A causal transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, 32), nn.Linear(32, WORDS)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.register_buffer("mask", torch.ones(8, 8).triu(1).bool())

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(self.words(x), src_mask=self.mask))


class Several(nn.Module):
    """Returns a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.inner(x)}


def frozen() -> nn.Module:
    model = mlp()
    for parameter in model[1].parameters():
        parameter.requires_grad_(False)
    return model


def regressor() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 2))


def labeller() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4))


def next_token(outputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.flatten(0, -2), labels.flatten())


def batch_norm(policy: str) -> Kind:
    name = f"CNN with BatchNorm, buffers={policy!r}"
    return Kind(
        name, lambda: cnn(nn.BatchNorm2d), images, least=0.85, rounds=40, task={"buffers": policy}
    )


KINDS = [
    Kind("MLP", mlp, images, least=0.8, rounds=60),
    Kind("CNN", cnn, images, least=0.8, rounds=60),
    Kind("CNN with GroupNorm", lambda: cnn(groups), images, least=0.8, rounds=40),
    batch_norm("average"),
    batch_norm("local"),
    batch_norm("refuse"),
    Kind("ResNet-18 with GroupNorm", lambda: resnet18(groups), images, least=0.8),
    Kind("ResNet-18 with BatchNorm", lambda: resnet18(nn.BatchNorm2d), images, least=0.8,
         task={"buffers": "average"}),
    Kind("Dropout", dropout, images, least=0.8, rounds=60),
    Kind("LSTM", lambda: Recurrent(nn.LSTM), rows, least=0.6, lr=0.5, rounds=60),
    Kind("GRU", lambda: Recurrent(nn.GRU), rows, least=0.6, lr=0.5, rounds=60),
    Kind("Transformer with default dropout", Transformer, rows, least=0.6, rounds=60),
    Kind("Embedding with tied weights", Tied, language, next_token, least=0.5, lr=0.5, rounds=60),
    Kind("Next token, causal transformer", NextWord, language, next_token, least=0.5, rounds=60),
    Kind("Frozen backbone", frozen, images, least=0.7, rounds=60),
    Kind("Chosen parameters (train=)", mlp, images, least=0.7, rounds=60,
         task={"train": lambda name: name.startswith("3.")}),
    Kind("Output is a dictionary (forward=)", Several, images, least=0.8, rounds=60,
         task={"forward": lambda module, x: module(x)["logits"]}),
    Kind("Regression", regressor, plane, functional.mse_loss, most=0.5, rounds=60),
    Kind("Multi-label", labeller, properties, functional.binary_cross_entropy_with_logits,
         most=0.4, rounds=60),
]  # fmt: skip
