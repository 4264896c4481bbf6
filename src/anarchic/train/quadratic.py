"""Quadratic losses as a task: NumPy alone, the optimum known in closed form."""

from __future__ import annotations

import hashlib
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from anarchic.core.types import Integers, Layout
from anarchic.data.quadratics import Floats, Quadratics
from anarchic.train.draws import Draws
from anarchic.train.task import Picks


@final
class QuadraticTask:
    """``Quadratics`` in the form that the backends want. A batch of B divides the noise by B."""

    def __init__(self, functions: Quadratics, start: Floats | None = None) -> None:
        self.functions = functions
        self.layout = Layout.of({"x": ((functions.dim,), "F64")})
        self.samples: Integers = np.ones(functions.workers, np.int64)
        self._start = np.zeros(functions.dim) if start is None else start.astype(np.float64)

    def digest(self) -> str:
        functions = self.functions
        parts = hashlib.sha256(f"{functions.hessians.shape} {functions.noise}".encode())
        parts.update(functions.hessians.tobytes() + functions.optima.tobytes())
        return parts.hexdigest()

    def init(self) -> Floats:
        return self._start.copy()

    def put(self, array: NDArray[Any]) -> NDArray[Any]:
        return array.copy()

    def get(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def pick(self, draws: Draws, batch: int) -> Picks:
        scale = self.functions.noise / np.sqrt(self.functions.dim * batch)
        return {"noise": scale * draws.normal(self.functions.dim)}

    def gradient(self, params: Floats, worker: int, picks: Picks) -> Floats:
        return np.asarray(self.functions.gradient(params, worker) + picks["noise"])

    def lane_gradients(self, params: Floats, workers: Integers, picks: Picks) -> Floats:
        away, hessians = params - self.functions.optima[workers], self.functions.hessians[workers]
        exact = hessians * away if hessians.ndim == 2 else np.einsum("ijk,ik->ij", hessians, away)
        return np.asarray(exact + picks["noise"])

    def evaluate(self, params: Floats) -> dict[str, float]:
        away = params - self.functions.optimum()
        return {
            "loss": self.functions.loss(params),
            "distance": float(np.linalg.norm(away)),
        }
