"""The Ray backend with one and two actors against the batched one, in one interleaved run.

    python -m benchmarks.ray_scaling           measure, print and keep the results
    python -m benchmarks.ray_scaling --page    write the table of the kept results to the docs

Three workloads: rounds of the CNN with five visits at a time (W3's: 28x28 colour images, batch 50,
K = 5), the same where updates may be up to five versions late, so that more visits can be computed
at once, and softmax regression (W1's), whose visits are so short that what a call costs shows.
Images are random: the arithmetic is the same. Cluster and driver share this machine, so two actors
are held against two processes that each train a model of their own: what a second core is worth at
the time. Exits with 1 if the parameters differ by more than rounding, or if two actors are below
0.6 times these on the CNN; five visits, dealt as three and two, allow for 0.83.
"""

from __future__ import annotations

import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import ray

from anarchic import Experiment, Settings, build
from anarchic.core.types import Vector
from anarchic.data import Dataset, iid
from anarchic.sim.engine import Engine
from anarchic.train.on_ray import OnRay
from anarchic.train.task import Backend, make_task
from benchmarks.record import Record, read, short, spread

REPEATS = 3
LEAST_GAIN = 1.2  # from a second actor
LEAST_SHARE, MOST_DIFFERENCE = 0.6, 1e-4
APART, ONE, TWO = "batched, 2 processes", "ray, 1 actor", "ray, 2 actors"
PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
BEGIN, END = "<!-- benchmarks.ray_scaling: begin -->", "<!-- benchmarks.ray_scaling: end -->"

CNN = Settings(model="cnn", m=5, local_steps=5, batch=50, local_lr=0.05, rounds=2)
WORKLOADS = {
    "CNN, 5 visits at once": CNN,
    "CNN, up to 10 at once": replace(CNN, max_staleness=4),
    "softmax regression": Settings(m=5, local_steps=5, batch=64, rounds=40),
}


def main() -> int:
    if "--page" in sys.argv:
        write_page()
        return 0
    ray.init(
        "local",
        num_cpus=3,  # one for each actor: those that wait for their turn use none
        object_store_memory=2**29,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        _system_config={"worker_niceness": 0},  # Ray's 15 would have a busy machine judge
    )
    record = Record("ray_scaling", "The Ray backend against the batched one")
    backends = {ONE: OnRay(1), TWO: OnRay(2)}
    for group, settings in WORKLOADS.items():
        measure(record, group, settings, backends)
    ray.shutdown()
    return record.finish()


def measure(record: Record, group: str, settings: Settings, backends: dict[str, OnRay]) -> None:
    plain = prepared(settings)
    contestants: dict[str, tuple[int, Backend]] = {
        "batched, 1 thread": (1, plain.backend),
        "batched, 2 threads": (2, plain.backend),
        **{name: (1, backend) for name, backend in backends.items()},
    }
    steps = int(plain.timetable.local_steps.sum())
    rates: dict[str, list[float]] = {name: [] for name in (*contestants, APART)}
    ends: dict[str, Vector] = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for _ in range(REPEATS + 1):  # the first starts actors and processes and does not count
            for name, (threads, backend) in contestants.items():
                start = time.perf_counter()
                ends[name] = train(replace(plain, backend=backend, threads=threads))
                rates[name].append(steps / (time.perf_counter() - start))
            start = time.perf_counter()
            list(pool.map(train_apart, [group] * 2))
            rates[APART].append(2 * steps / (time.perf_counter() - start))
    medians = {
        name: record.measure(name, found[1:], unit="local steps/s", group=group)
        for name, found in rates.items()
    }
    record.ratio("2 actors / 1 actor", medians[TWO] / medians[ONE], group=group)
    record.ratio("2 actors / 2 processes", medians[TWO] / medians[APART], group=group)
    if settings.model == "cnn":
        gain, share = medians[TWO] / medians[ONE], medians[TWO] / medians[APART]
        record.bound(f"{group}: 2 actors / 1 actor", gain, least=LEAST_GAIN)
        record.bound(f"{group}: 2 actors / 2 processes", share, least=LEAST_SHARE)
    record.bound(
        f"{group}: relative difference of the parameters",
        difference(ends[TWO], ends["batched, 1 thread"]),
        most=MOST_DIFFERENCE,
    )


def prepared(settings: Settings) -> Experiment:
    channels = 3 if settings.model == "cnn" else 1
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5_000, channels, 28, 28), dtype=np.float32)
    y = rng.integers(0, 10, 5_000)
    data = Dataset("random", x, y, x[:100], y[:100], 10)
    small = build(replace(settings, model="logistic"))  # its rule and timetable are what is wanted
    return replace(small, task=make_task(settings.model, data, iid(y, 10, 0)))


def train(experiment: Experiment) -> Vector:
    engine = Engine(experiment)
    with experiment.computing():
        while engine.version < experiment.timetable.rounds:
            engine.next_version()
    params: Vector = engine.state.params
    return params


def train_apart(group: str) -> None:
    """In a process of its own, with one thread."""
    train(replace(_kept(group), threads=1))


@cache
def _kept(group: str) -> Experiment:
    return prepared(WORKLOADS[group])


def difference(a: Vector, b: Vector) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def write_page() -> None:
    """Put the kept results between the marks of the page."""
    record = read()["ray_scaling"]
    between = f"{BEGIN}\n\n{in_markdown(record)}\n\n{END}"
    text = PAGE.read_text(encoding="utf-8")
    made = re.sub(f"{BEGIN}.*{END}", lambda _: between, text, flags=re.S)
    PAGE.write_text(made, encoding="utf-8")


def in_markdown(record: Record) -> str:
    names = list(dict.fromkeys(measure.name for measure in record.measures))
    ratios = list(dict.fromkeys(ratio.name for ratio in record.ratios))
    heads = ["local steps per second", *names, *ratios]
    rows = []
    for group in dict.fromkeys(measure.group for measure in record.measures):
        rates = {m.name: m for m in record.measures if m.group == group}
        times = {r.name: r.value for r in record.ratios if r.group == group}
        spreads = (spread(rates[name]) for name in names)
        rows.append([group, *spreads, *(short(times[name]) for name in ratios)])
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    told = (
        f"Medians of {record.measures[0].repeats} and the range, {record.date}, "
        f"{record.machine['cores']} cores, load before the run {record.machine['load']}; "
        "made by `benchmarks/ray_scaling.py`."
    )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{told}"


if __name__ == "__main__":
    sys.exit(main())
