"""The models and the local work in plain PyTorch, for every contestant that is built on it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, max_pool2d, relu

from benchmarks.workloads import Array, Workload

Samples = tuple[Tensor, Tensor]


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 32, 5), nn.Conv2d(32, 64, 5)
        self.dense1, self.dense2 = nn.Linear(1024, 512), nn.Linear(512, 128)
        self.dense3 = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = max_pool2d(relu(self.conv1(x)), 2)
        x = max_pool2d(relu(self.conv2(x)), 2).flatten(1)
        out: Tensor = self.dense3(relu(self.dense2(relu(self.dense1(x)))))
        return out


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 8)
        self.lstm = nn.LSTM(8, 100, 2, batch_first=True)
        self.dense = nn.Linear(100, 80)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.dense(self.lstm(self.embedding(tokens.int()))[0][:, -1])
        return out


def net(workload: Workload, start: dict[str, Array]) -> nn.Module:
    """The model of a workload, where training starts."""
    kinds = {"logistic": lambda: nn.Linear(784, 10), "cnn": Cnn, "lstm": Lstm}
    module = kinds[workload.model]()
    module.load_state_dict({name: torch.from_numpy(value) for name, value in start.items()})
    return module


def tensors(parts: list[tuple[Array, Array]]) -> list[Samples]:
    return [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in parts]


def train(module: nn.Module, samples: Samples, workload: Workload) -> None:
    """K steps of SGD, each on a batch drawn with replacement."""
    x, y = samples
    optimiser = torch.optim.SGD(module.parameters(), lr=workload.lr)
    for _ in range(workload.steps):
        chosen = torch.randint(0, len(y), (workload.batch,))
        optimiser.zero_grad()
        cross_entropy(module(x.index_select(0, chosen)), y[chosen]).backward()
        optimiser.step()


def import_lazily() -> None:
    """Take a step on nothing, so that what torch imports at the first one is imported."""
    module = nn.Linear(2, 2)
    module(torch.zeros(1, 2)).sum().backward()
    torch.optim.SGD(module.parameters(), lr=0.1).step()


def params_of(module: nn.Module) -> dict[str, Array]:
    return {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}


def versions() -> dict[str, str]:
    return {"torch": torch.__version__}
