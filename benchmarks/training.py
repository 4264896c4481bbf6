"""Local steps a second on LR/MNIST: batched, our own loop, and a plain PyTorch loop.

    python -m benchmarks.training

The plain loop runs with one thread and with two, and the faster of them is the measure.
Workload W1: softmax regression on MNIST, 10 workers of two labels each, 5 a round, K = 5, batch 64,
150 rounds. All take turns, so that a busy machine slows all alike; medians of the repeats
count. Training and aggregation are timed, evaluation and loading are not. Exits with 1 if batched
is below 3,000 steps a second or below 3 times the plain loop. Without MNIST, random images of the
same shape stand in: the arithmetic is the same.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from anarchic import Experiment, Settings, build
from anarchic.data import Dataset, Parts, labels, load
from anarchic.errors import DataError
from anarchic.models import make
from anarchic.sim.engine import Walk
from anarchic.train.loop import Loop
from anarchic.train.torch_task import TorchTask

Samples = tuple[torch.Tensor, torch.Tensor]

WORKERS, M, K, BATCH, LR, ROUNDS, LABELS = 10, 5, 5, 64, 0.1, 150, 2
REPEATS, THREADS = 5, 2
LEAST_RATE, LEAST_RATIO = 3_000.0, 3.0

SETTINGS = Settings(
    data="mnist", labels_per_worker=LABELS, m=M, local_steps=K, batch=BATCH, rounds=ROUNDS
)


def main() -> int:
    data, where = mnist_or_random()
    parts = labels(data.y_train, WORKERS, LABELS, 0)
    experiment, held = prepared(data, parts), tensors(data, parts)
    contestants: dict[str, tuple[int, Callable[[], None]]] = {
        "anarchic batched": (THREADS, lambda: walk(experiment)),
        "anarchic loop": (1, lambda: walk(replace(experiment, backend=Loop()))),
        "plain loop, 1 thread": (1, lambda: plain_loop(held)),
        "plain loop, 2 threads": (THREADS, lambda: plain_loop(held)),
    }
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(REPEATS + 1):
        for name, (threads, run) in contestants.items():
            torch.set_num_threads(threads)
            start = time.perf_counter()
            run()
            rates[name].append(ROUNDS * M * K / (time.perf_counter() - start))
    medians = {name: statistics.median(found[1:]) for name, found in rates.items()}
    plain = max(rate for name, rate in medians.items() if name.startswith("plain"))
    print(f"{where}, medians of {REPEATS}, ratio to the faster plain loop")
    print(f"{'':<22}{'local steps/s':>14}{'lowest':>9}{'highest':>9}{'ratio':>8}")
    for name, found in rates.items():
        low, high = min(found[1:]), max(found[1:])
        print(f"{name:<22}{medians[name]:>14,.0f}{low:>9,.0f}{high:>9,.0f}", end="")
        print(f"{medians[name] / plain:>8.2f}")
    ours = medians["anarchic batched"]
    return int(ours < LEAST_RATE or ours < LEAST_RATIO * plain)


def mnist_or_random() -> tuple[Dataset, str]:
    try:
        return load("mnist"), "MNIST"
    except DataError:
        rng = np.random.default_rng(0)
        x = rng.standard_normal((60_000, 1, 28, 28), dtype=np.float32)
        y = rng.permutation(np.arange(60_000) % 10)
        return Dataset("random", x, y, x[:100], y[:100], 10), "random images (MNIST not found)"


def prepared(data: Dataset, parts: Parts) -> Experiment:
    small = build(replace(SETTINGS, data="digits"))  # its rule and timetable are what is wanted
    return replace(small, task=TorchTask(make("logistic", data), data, parts))


def walk(experiment: Experiment) -> None:
    walking = Walk(experiment)
    while walking.version < ROUNDS:
        walking.next_version()


def tensors(data: Dataset, parts: Parts) -> list[Samples]:
    x = torch.from_numpy(data.x_train.reshape(len(data.x_train), -1))
    y = torch.from_numpy(data.y_train)
    return [(x[part], y[part]) for part in parts]


def plain_loop(held: list[Samples]) -> None:
    """What one writes without a framework: deep copies, an optimiser, a mean of parameters."""
    rng = np.random.default_rng(1)
    torch.manual_seed(0)
    server = nn.Linear(784, 10)
    for _ in range(ROUNDS):
        models = []
        for worker in rng.choice(WORKERS, M, replace=False):
            model = copy.deepcopy(server)
            train(model, *held[worker])
            models.append(model)
        with torch.no_grad():
            for mine, *theirs in zip(
                server.parameters(), *(model.parameters() for model in models), strict=True
            ):
                mine.copy_(torch.stack(theirs).mean(0))


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(K):
        chosen = torch.randint(0, len(y), (BATCH,))
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
        optimiser.step()


if __name__ == "__main__":
    sys.exit(main())
