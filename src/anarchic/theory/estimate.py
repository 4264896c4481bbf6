"""L, sigma_L and sigma_G of a task, by sampling.

The assumptions are bounds that hold everywhere, which cannot be measured. Measured here are the
largest values over workers at a few points, usually along a run. They tend to be too small for the
constants: what the theorems say of the run holds as far as the points represent its path. At one
point they tend to be too large, since the largest of many estimates is chosen in part by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from math import isfinite, nan

import numpy as np
from numpy.typing import NDArray

from anarchic.core.types import Integers, Vector
from anarchic.errors import ConfigError, RunError
from anarchic.train.draws import Draws
from anarchic.train.task import Picks, Task

Floats = NDArray[np.float64]

LANES = 16  # workers whose gradients are computed together
WORKERS = 64  # if there are more, this many are looked at, evenly spaced
CURVATURE_BATCH = 256  # samples per worker for its curvature
_ITERATIONS = 30  # at most, of power iteration
_SETTLED = 0.005  # relative change at which power iteration ends
_SEED = 20220  # not a run's, so that estimates use other samples than training


@dataclass(frozen=True)
class Estimate:
    """Estimates of the constants of Assumptions 1 and 3: the largest over all points.

    ``squared_gradients`` are estimates of ||grad f||^2 at each point.
    """

    smoothness: float
    sigma_local: float
    sigma_global: float
    squared_gradients: tuple[float, ...]


def estimate_constants(
    task: Task, points: Sequence[Vector], *, batch: int, repeats: int = 16
) -> Estimate:
    """L, sigma_L and sigma_G of a task at ``points``; ``batch`` is the workers' own.

    >>> from anarchic.data import random_quadratics
    >>> from anarchic.train.quadratic import QuadraticTask
    >>> task = QuadraticTask(random_quadratics(workers=4, dim=3, noise=0.5))
    >>> found = estimate_constants(task, [task.init()], batch=1)
    >>> round(found.smoothness, 2)
    1.0
    """
    if not points:
        raise ConfigError("Constants are estimated at points: give at least one.")
    with np.errstate(all="ignore"):  # what is not finite is told below
        seen = [estimate_variances(task, point, batch=batch, repeats=repeats) for point in points]
        smoothness = [estimate_smoothness(task, point) for point in points]
    for n, (found, curvature) in enumerate(zip(seen, smoothness, strict=True), start=1):
        if not np.isfinite([curvature, *astuple(found)]).all():
            raise RunError(
                f"The gradients at model {n} of {len(points)} are not finite, or too large: the "
                "run diverged, or its model is damaged. With points=1 the constants are estimated "
                "at the first model only."
            )
    return Estimate(
        max(smoothness),
        max(found.sigma_local for found in seen),
        max(found.sigma_global for found in seen),
        tuple(found.squared_gradient for found in seen),
    )


def estimate_smoothness(task: Task, point: Vector) -> float:
    """L near ``point``: the largest curvature, in absolute value, of any worker's function.

    Power iteration: a random vector is multiplied by the Hessian repeatedly, each time as the
    central difference of two gradients of the same samples, until its growth settles. The result
    is a few per cent too small where many curvatures are close together, and too large on average
    because it uses a sample of the data.
    """
    found = [
        _curvature(_gradients_at(task, workers, CURVATURE_BATCH, visit=0), point, len(workers))
        for workers in _chunks(task)
    ]
    return float(np.max(found))  # NaN if one is


@dataclass(frozen=True)
class Variances:
    """Standard deviations at one point; ``squared_gradient`` is ||grad f||^2."""

    sigma_local: float
    sigma_global: float
    squared_gradient: float


def estimate_variances(task: Task, point: Vector, *, batch: int, repeats: int = 16) -> Variances:
    """sigma_L and sigma_G at ``point``, those of the worker that deviates most.

    Every worker draws ``repeats`` batches. sigma_L^2 is the sample variance of their gradients,
    and their mean, a batch ``repeats`` times as large, is the estimate of the worker's gradient.
    The noise left in it is known, and subtracted from the squares of sigma_G and of the gradient.
    Each square is unbiased for its worker. The largest is not: with 64 workers of the same sigma_L
    and 16 repeats it is some 40 % too large in one dimension, a few per cent in a hundred.
    """
    if repeats < 2:
        raise ConfigError(f"A variance needs at least 2 repeats, got {repeats}.")
    found = [_moments(task, point, workers, batch, repeats) for workers in _chunks(task)]
    mean, spread = (np.concatenate(parts) for parts in zip(*found, strict=True))
    noise = spread / repeats  # of each worker's mean gradient
    M, together = len(mean), mean.mean(axis=0)
    apart = ((mean - together) ** 2).sum(axis=1) - (1 - 2 / M) * noise - noise.mean() / M
    gradient = float(together @ together) - float(noise.mean()) / M
    return Variances(
        float(np.sqrt(spread.max())), float(np.sqrt(max(apart.max(), 0.0))), max(gradient, 0.0)
    )


Gradients = Callable[[Floats], Floats]  # (lanes, dim) -> (lanes, dim)


def _curvature(gradients: Gradients, point: Vector, lanes: int) -> float:
    resolution = float(np.cbrt(np.finfo(point.dtype).eps))
    length = resolution * max(1.0, float(np.linalg.norm(point)))
    if not isfinite(length):
        return nan
    vectors = np.random.default_rng(_SEED).normal(size=(lanes, len(point)))
    growth = np.zeros(lanes)
    for _ in range(_ITERATIONS):
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
        ahead, behind = gradients(point + length * vectors), gradients(point - length * vectors)
        vectors = (ahead - behind) / (2 * length)
        before, growth = growth, np.linalg.norm(vectors, axis=1)
        if (np.abs(growth - before) <= _SETTLED * growth).all():
            break
    return float(growth.max())


def _moments(
    task: Task, point: Vector, workers: Integers, batch: int, repeats: int
) -> tuple[Floats, Floats]:
    """Mean (lanes, dim) and variance (lanes,) of stochastic gradients, in one pass."""
    at = np.tile(point.astype(np.float64), (len(workers), 1))
    mean, total = np.zeros_like(at), np.zeros(len(workers))
    for repeat in range(repeats):
        drawn = _gradients_at(task, workers, batch, visit=1 + repeat)(at)
        away = drawn - mean
        mean += away / (repeat + 1)
        total += np.einsum("ij,ij->i", away, drawn - mean)
    return mean, total / (repeats - 1)


def _gradients_at(task: Task, workers: Integers, batch: int, visit: int) -> Gradients:
    """Gradients of some workers on samples that stay the same."""
    drawn = task.pick(Draws(_SEED, workers, np.full(len(workers), visit), 1), batch)
    picks: Picks = {name: pick[:, 0] for name, pick in drawn.items()}
    dtype = task.init().dtype

    def gradients(params: Floats) -> Floats:
        computed = task.lane_gradients(task.put(params.astype(dtype)), workers, picks)
        found: NDArray[np.float64] = task.get(computed).astype(np.float64)
        found[:, task.layout.buffer_places] = 0  # buffers afterwards, which are no gradient
        return found

    return gradients


def _chunks(task: Task) -> Iterator[Integers]:
    holders = np.flatnonzero(task.samples)
    if len(holders) > WORKERS:
        holders = holders[np.linspace(0, len(holders) - 1, WORKERS).astype(np.int64)]
    for start in range(0, len(holders), LANES):
        yield holders[start : start + LANES]
