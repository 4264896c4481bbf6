"""The GPU path: its results against the CPU's reference loop, and the time of a round.

    python -m benchmarks.cuda --out elsewhere    # PYTHONPATH=src:. where nothing is installed

Agreement is required in float64 to 1e-10 and in float32 (without TF32) to 1e-4: of single visits
for every model and local rule, and of the parameters after some rounds of several runs at once,
fresh and late. The CNN's runs are compared in float64 alone: in float32 some value falls on the
other side of a maximum sooner or later, and then the CPU, too, is up to 1e-2 away from its own
float64. Visits in TF32 and bfloat16, of the models that have kernels for them, are compared with
the CPU's in float32, to what this rounding explains. Times are of whole rounds, transfer and
aggregation included, after warming up.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anarchic import (
    AfaCd,
    Experiment,
    LocalRule,
    LocalWork,
    Momentum,
    Prox,
    Scaffold,
    Sgd,
    Snapshot,
)
from anarchic.core.arrays import on_host
from anarchic.core.types import Matrix
from anarchic.core.wrappers import SharedVectors
from anarchic.data import Dataset, iid
from anarchic.models import make
from anarchic.participation import ConstantSteps, Sampler, UniformSteps
from anarchic.sim.engine import Engine
from anarchic.sim.simulate import simulate_many
from anarchic.study.results import hardware
from anarchic.train.backends import Batched, Loop
from anarchic.train.task import Lanes
from anarchic.train.torch_task import Precision, TorchTask
from benchmarks.kernels_lstm import cudnn_loop, lanes_of, milliseconds
from benchmarks.record import RESULTS, Record

LOCAL_RULES: tuple[LocalRule, ...] = (Sgd(), Prox(0.1), Momentum(0.9), Scaffold(), Scaffold(1))
PRECISIONS: tuple[Precision, ...] = ("tf32", "bf16")
REPEATS = 3
MOST_CNN_MS = {"tf32": 14.0, "bf16": 10.0}
MOST_LSTM_MS, LEAST_TIMES_CUDNN = 6.0, 40.0
LIMITS = {"float64": 1e-10, "float32": 1e-4}
# Twice as far as the CNN's visits are on a CPU where the factors of products are cut to these bits:
# some values fall on the other side of a ReLU or a maximum.
ROUNDED = {"tf32": 1e-1, "bf16": 2e-1}


def main() -> int:
    parser = argparse.ArgumentParser(description="The GPU path.")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the result is kept")
    out = parser.parse_args().out
    if not torch.cuda.is_available():
        print("no GPU here")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    record = Record("cuda", "W3 and W4 on a GPU: CNN, batch 500, 32x32; LSTM, 72 workers")
    record.machine |= {**hardware("cuda"), "cores": os.cpu_count()}
    timed(record)
    agreement(record)
    return record.finish(out)


def timed(record: Record) -> None:
    """W3 with batches of 500 and W4 as in table 1, each precision with and without recordings."""
    a_step: dict[str, Any] = {"name": "LSTM, a local step of all", "unit": "ms", "better": "lower"}
    lstm_ms = {}
    for precision in PRECISIONS:
        for graphs in (False, True):
            time_of = partial(round_time, precision=precision, graphs=graphs)
            group = f"{precision}{', replayed' if graphs else ''}"
            cnn = [time_of("cnn", images(5_000), 10, 5, 5, 500, 50) for _ in range(REPEATS)]
            lstm = [time_of("lstm", text(20_000), 143, 72, 50, 10, 2) / 50 for _ in range(REPEATS)]
            of_cnn = record.measure("CNN, a round", cnn, unit="ms", better="lower", group=group)
            lstm_ms[precision] = record.measure(values=lstm, group=group, **a_step)
        record.bound(f"CNN, a round in {precision}, ms", of_cnn, most=MOST_CNN_MS[precision])
    record.bound("LSTM, a local step of all in bf16, ms", lstm_ms["bf16"], most=MOST_LSTM_MS)
    torch.backends.cudnn.allow_tf32 = True
    loop = cudnn_loop(lanes_of(72), 72)
    loop_ms = record.measure(
        values=[milliseconds(loop, repeats=REPEATS) for _ in range(REPEATS)],
        group="float32 with TF32, a loop over workers with cuDNN",
        **a_step,
    )
    times = {precision: loop_ms / ms for precision, ms in lstm_ms.items()}
    record.bound(
        "LSTM in bf16: times the loop over cuDNN, which is in float32 with TF32",
        times["bf16"],
        least=LEAST_TIMES_CUDNN,
    )
    for precision, ratio in times.items():
        record.ratio("LSTM, times the loop", ratio, group=f"{precision}, replayed")


def agreement(record: Record) -> None:
    """How far the GPU is from the CPU, relative to how far the parameters went."""
    data = {"logistic": images(200), "mlp": images(200), "cnn": images(200), "lstm": text(200)}
    visits: dict[str, list[float]] = {}
    for model, dtype, graphs in product(data, LIMITS, (False, True)):
        far = [difference(model, data[model], rule, graphs, dtype=dtype) for rule in LOCAL_RULES]
        visits.setdefault(dtype, []).append(float(np.max(far)))
        how = "replayed" if graphs else "plain"
        print(f"{model:<10}{dtype:<10}{how:<10}{np.max(far):>10.1e}  limit {LIMITS[dtype]:.0e}")
    runs: dict[str, list[float]] = {}
    for model, dtype in (("mlp", "float64"), ("mlp", "float32"), ("cnn", "float64")):
        for name, one in run_differences(model, data[model], dtype).items():
            runs.setdefault(dtype, []).append(one)
            print(f"{model:<10}{dtype:<10}{name:<32}{one:>10.1e}  limit {LIMITS[dtype]:.0e}")
    for dtype, limit in LIMITS.items():  # np.max: not a number is not passed over
        record.bound(
            f"visits in {dtype}: relative distance from the CPU's",
            float(np.max(visits[dtype])),
            most=limit,
        )
        record.bound(
            f"runs in {dtype}: relative distance from the CPU's",
            float(np.max(runs[dtype])),
            most=limit,
        )
    data = {"cnn": images(1_000), "lstm": text(1_000)}
    for model, precision in product(data, PRECISIONS):
        far = [
            difference(model, data[model], Sgd(), graphs, precision=precision)
            for graphs in (False, True)
        ]
        record.bound(
            f"visits of the {model.upper()} in {precision}: relative distance from float32",
            float(np.max(far)),
            most=ROUNDED[precision],
        )


def run_differences(model: str, data: Dataset, dtype: Any) -> dict[str, float]:
    """Of what runs at once have learnt in a few rounds: on CUDA against the CPU."""
    cpu, cuda = (simulate_many(short_runs(model, data, dtype, d)) for d in ("cpu", "cuda"))
    start = make(model, data)
    first = TorchTask(start, data, iid(data.y_train, 10, 0), dtype=dtype).init()
    return {
        name: float(np.linalg.norm(there.params - run.params) / np.linalg.norm(run.params - first))
        for name, run in cpu.items()
        for there in [cuda[name]]
    }


def short_runs(model: str, data: Dataset, dtype: Any, device: str) -> dict[str, Experiment]:
    """Every local rule, with fresh updates of constant length and late ones of any."""
    parts = iid(data.y_train, 10, 0)
    task = TorchTask(make(model, data), data, parts, device=device, dtype=dtype)
    tables = {
        "fresh": Sampler(10, 5, ConstantSteps(3)).timetable(0, 6),
        "late": Sampler(10, 5, UniformSteps(1, 6), max_staleness=2).timetable(0, 6),
    }
    return {
        f"{rule} {age}": Experiment(
            task,
            SharedVectors(AfaCd(5), rule.shares, 10) if rule.shares else AfaCd(5),
            table,
            LocalWork(rule, lr=0.05, batch=8),
        )
        for rule in LOCAL_RULES
        for age, table in tables.items()
    }


def difference(
    model: str,
    data: Dataset,
    rule: LocalRule,
    graphs: bool,
    *,
    dtype: Any = "float32",
    precision: Precision = "ieee",
) -> float:
    """Of the directions of a few visits: CUDA lanes against the CPU loop."""
    parts = iid(data.y_train, 5, 0)
    cpu = TorchTask(make(model, data), data, parts, dtype=dtype)
    how: dict[str, Any] = {"dtype": dtype, "precision": precision, "graphs": graphs}
    cuda = TorchTask(make(model, data), data, parts, device="cuda", **how)
    params = cpu.init()
    # Few samples, or parameters far from where training starts, say little of rounding.
    batch, shift = (8, 0.01) if precision == "ieee" else (100, 0.0)
    control = {"control": np.full_like(params, 0.01)}
    lanes = Lanes(
        seed=3,
        worker=np.array([0, 3, 4, 4]),
        visit=np.array([0, 0, 0, 1]),
        local_steps=np.array([2, 3, 1, 2]),
        work=[LocalWork(rule, 0.05, batch)] * 4,
        snapshots=[
            Snapshot(0, params, control),
            Snapshot(1, params + params.dtype.type(shift), control),
        ],
        snapshot=np.array([0, 1, 0, 1]),
        kept={name: np.full((4, len(params)), 0.02, params.dtype) for name in rule.keeps},
    )
    slow = Loop().compute(cpu, lanes).directions
    fast = on_host(Batched().compute(cuda, at_home(lanes, cuda)).directions)
    return float(np.linalg.norm(slow - fast) / np.linalg.norm(slow))


def at_home(lanes: Lanes, task: TorchTask) -> Lanes:
    """The same lanes, with their vectors where the task holds them."""

    def moved(vectors: Mapping[str, Matrix]) -> dict[str, Any]:
        return {name: task.to_storage(vector) for name, vector in vectors.items()}

    snapshots = [
        Snapshot(snapshot.version, task.to_storage(snapshot.params), moved(snapshot.extras))
        for snapshot in lanes.snapshots
    ]
    return replace(lanes, snapshots=snapshots, kept=moved(lanes.kept))


def round_time(
    model: str,
    data: Dataset,
    workers: int,
    m: int,
    steps: int,
    batch: int,
    rounds: int,
    *,
    precision: Precision,
    graphs: bool,
) -> float:
    """Milliseconds."""
    parts = iid(data.y_train, workers, 0)
    task = TorchTask(
        make(model, data), data, parts, device="cuda", precision=precision, graphs=graphs
    )
    table = Sampler(workers, m, ConstantSteps(steps)).timetable(0, rounds + 2)
    engine = Engine(Experiment(task, AfaCd(m), table, LocalWork(lr=0.01, batch=batch)))
    for _ in range(2):
        engine.next_version()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(rounds):
        engine.next_version()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / rounds


def images(count: int) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, 3, 32, 32), dtype=np.float32)
    y = rng.integers(0, 10, count)
    return Dataset("images", x, y, x[:100], y[:100], 10, augment="crop-flip")


def text(count: int) -> Dataset:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 80, (count, 80)).astype(np.uint8), rng.integers(0, 80, count)
    return Dataset("text", x, y, x[:100], y[:100], 80)


if __name__ == "__main__":
    sys.exit(main())
