"""A kind of model in each world: how good it is before and after, and how fast."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import torch

import anarchic
from anarchic import Batched, ConstantSteps, Experiment, FedAvg, LocalWork, Loop, Sampler, TorchTask
from anarchic.data import iid
from anarchic.errors import ConfigError
from anarchic.models.module import set_tensors
from anarchic.train.engines import cross_entropy
from anarchic.worker.initial import InitialModel, write_initial_model
from tests.bridges.serving import two_workers
from tests.kinds.libraries import LIBRARIES
from tests.kinds.outcome import Outcome
from tests.train.kinds import KINDS, WORKERS, Kind

STEPS, BATCH, VISITS = 10, 16, 24
EVERY = {**KINDS, **LIBRARIES}


def loop(name: str) -> Outcome:
    return simulated(name, Loop())


def batched(name: str) -> Outcome:
    return simulated(name, Batched())


def simulated(name: str, backend: Loop | Batched) -> Outcome:
    kind = EVERY[name]
    data = kind.data()
    parts = iid(data.y_train, WORKERS, 0)
    torch.manual_seed(0)
    local = kind.options.get("buffers") == "local"
    try:
        task = TorchTask(kind.make(), data, parts, per_worker=local, **kind.options)
    except ConfigError as error:
        return Outcome(refused=str(error))
    table = Sampler(WORKERS, WORKERS, ConstantSteps(STEPS)).timetable(0, kind.rounds)
    work, rule = LocalWork(lr=kind.lr, batch=BATCH), FedAvg(WORKERS)
    experiment = Experiment(task, rule, table, work, 0, backend, eval_every=kind.rounds, threads=1)
    run = anarchic.simulate(experiment)
    again = anarchic.simulate(experiment)  # timed once everything is warm
    # Of buffers that workers keep, the server's model has a mean that no worker has.
    metric = "workers_mean" if local else "loss" if kind.by_loss else "accuracy"
    before, after = run.metrics[0][metric], run.metrics[-1][metric]
    each_s = again.summary["train_seconds"] / again.summary["local_steps"]
    alone = isinstance(backend, Batched) and one_by_one(task)
    return Outcome(before, after, kind.bound, kind.by_loss, each_s / plain_s(kind), alone=alone)


def one_by_one(task: TorchTask) -> bool:
    """Whether its visits are computed one after another."""
    return task._engine.function.__name__ == "one_by_one"


def plain_s(kind: Kind) -> float:
    """Seconds per step of torch's own loop, in one thread as above."""
    data, threads = kind.data(), torch.get_num_threads()
    model, loss = trainable(kind), kind.options.get("loss", cross_entropy)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], kind.lr)
    x, y = samples(data.x_train, data.y_train)
    torch.set_num_threads(1)
    try:
        times = []
        for k in range(40):
            began = time.perf_counter()
            some = torch.arange(k * BATCH, (k + 1) * BATCH) % len(y)
            step(kind, model, optimizer, loss, x[some], y[some])
            times.append(time.perf_counter() - began)
        return float(np.median(times[5:]))
    finally:
        torch.set_num_threads(threads)


def live(name: str, folder: Path) -> Outcome:
    """Two workers of a real server, each with torch's own loop and half of the data."""
    kind = EVERY[name]
    data, trains = kind.data(), kind.options.get("train")
    loss = kind.options.get("loss", cross_entropy)
    pattern = None if trains is None else trains.__self__.pattern
    first = InitialModel(
        source=f"tests.kinds.worlds:{name}", train=pattern, buffers=kind.options.get("buffers")
    )
    write_initial_model(folder / "model.safetensors", first)
    x, y = samples(data.x_train, data.y_train)

    trained = []  # the workers' own models, with the buffers that they keep

    def work(worker: anarchic.Worker, own: slice) -> None:
        model = trainable(kind)
        trained.append(model)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], kind.lr)
        order = np.random.default_rng(0)
        for _ in range(VISITS):
            with anarchic.torch.visit(worker, model, trains):
                for _ in range(STEPS):
                    some = order.integers(len(y[own]), size=BATCH)
                    step(kind, model, optimizer, loss, x[own][some], y[own][some])

    def judged(worker: anarchic.Worker, model: torch.nn.Module) -> float:
        snapshot = worker.pull()
        set_tensors(model, worker.layout.split(snapshot.params), name)
        return measured(kind, model, data, loss)

    with two_workers(folder) as workers:
        before = judged(workers[0], trainable(kind))
        threads = [
            threading.Thread(target=work, args=(worker, slice(half, None, 2)))
            for half, worker in enumerate(workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = judged(workers[0], trained[0])
    return Outcome(before, after, kind.bound, kind.by_loss)


def trainable(kind: Kind) -> torch.nn.Module:
    torch.manual_seed(0)
    model = kind.make()
    if (trains := kind.options.get("train")) is not None:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(bool(trains(name)))
    return model


def samples(x: np.ndarray, y: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.from_numpy(np.ascontiguousarray(x))
    return inputs if inputs.is_floating_point() else inputs.long(), torch.from_numpy(y)


def outputs(kind: Kind, model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    forward = kind.options.get("forward")
    return model(x) if forward is None else forward(model, x)


def step(kind, model, optimizer, loss, x, y) -> None:
    optimizer.zero_grad()
    loss(outputs(kind, model, x), y).backward()
    optimizer.step()


@torch.no_grad()
def measured(kind: Kind, model: torch.nn.Module, data: anarchic.data.Dataset, loss) -> float:
    training = model.training
    model.eval()
    x, y = samples(data.x_test, data.y_test)
    found = outputs(kind, model, x)
    model.train(training)
    return float(loss(found, y) if kind.by_loss else (found.argmax(-1) == y).float().mean())


def __getattr__(name: str) -> object:
    """Kinds by name, as ``anarchic init --from`` finds them."""
    if name not in EVERY:
        raise AttributeError(name)
    return EVERY[name].make
