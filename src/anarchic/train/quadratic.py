"""Quadratic losses as a task: NumPy alone, the optimum known in closed form."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import final

import numpy as np

from anarchic.core.types import Integers, Layout
from anarchic.data.quadratics import Floats, Quadratics
from anarchic.train.draws import Draws
from anarchic.train.task import InNumpy, Picks


@final
class QuadraticTask(InNumpy):
    """``Quadratics`` in the form that the backends want. A batch of B divides the noise by B."""

    def __init__(self, functions: Quadratics, start: Floats | None = None) -> None:
        self.functions = functions
        self._worker = np.arange(functions.workers)  # as random numbers know them
        self.layout = Layout.of({"x": ((functions.dim,), "F64")})
        self.samples: Integers = np.ones(functions.workers, np.int64)
        self.max_lanes, self.threads = None, 1
        self._start = np.zeros(functions.dim) if start is None else start.astype(np.float64)

    def digest(self) -> str:
        functions = self.functions
        parts = hashlib.sha256(f"{functions.hessians.shape} {functions.noise}".encode())
        parts.update(functions.hessians.tobytes() + functions.optima.tobytes())
        return parts.hexdigest()

    def init(self) -> Floats:
        return self._start.copy()

    @property
    def batch_key(self) -> Hashable:
        return "quadratic", self.functions.hessians.shape[1:], self.functions.noise

    def joined(self, others: Sequence[QuadraticTask]) -> QuadraticTask:
        tasks = [self, *others]
        functions = Quadratics(
            np.concatenate([task.functions.hessians for task in tasks]),
            np.concatenate([task.functions.optima for task in tasks]),
            self.functions.noise,
        )
        joint = QuadraticTask(functions, self._start)
        joint._worker = np.concatenate([task._worker for task in tasks])
        return joint

    def pick(self, draws: Draws, batch: int) -> Picks:
        draws = replace(draws, worker=self._worker[draws.worker])
        scale = self.functions.noise / np.sqrt(self.functions.dim * batch)
        return {"noise": scale * draws.normal(self.functions.dim)}

    def gradient(self, params: Floats, worker: int, picks: Picks) -> Floats:
        return np.asarray(self.functions.gradient(params, worker) + picks["noise"])

    def exact_gradient(self, params: Floats, worker: int) -> Floats:
        return np.asarray(self.functions.gradient(params, worker))

    def lane_gradients(self, params: Floats, workers: Integers, picks: Picks) -> Floats:
        away, hessians = params - self.functions.optima[workers], self.functions.hessians[workers]
        exact = hessians * away if hessians.ndim == 2 else np.einsum("ijk,ik->ij", hessians, away)
        return np.asarray(exact + picks["noise"])

    def evaluate_all(self, params: Sequence[Floats]) -> list[dict[str, float]]:
        return [self.evaluate(vector) for vector in params]

    def evaluate(self, params: Floats) -> dict[str, float]:
        away = params - self.functions.optimum()
        return {"loss": self.functions.loss(params), "distance": float(np.linalg.norm(away))}
