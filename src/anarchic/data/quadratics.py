"""Quadratic functions, one per worker, with a known optimum: for theory and for tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anarchic.errors import ConfigError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Quadratics:
    """Worker i has ``f_i(x) = (x - optima[i])' H_i (x - optima[i]) / 2``; f is their mean.

    ``hessians`` are full matrices or only their diagonals. ``noise`` is sigma: a stochastic
    gradient has the total variance sigma^2 in any dimension.
    """

    hessians: Floats  # (workers, dim, dim), or (workers, dim) for diagonals
    optima: Floats  # (workers, dim)
    noise: float = 0.0

    def __post_init__(self) -> None:
        workers, dim = self.optima.shape if self.optima.ndim == 2 else (0, 0)
        shapes = ((workers, dim), (workers, dim, dim))
        if workers * dim == 0 or self.hessians.shape not in shapes:
            raise ConfigError(
                "Quadratics needs optima of shape (workers, dim) and hessians of shape (workers, "
                f"dim, dim) or (workers, dim), got {self.optima.shape} and {self.hessians.shape}."
            )
        if not self.noise >= 0:
            raise ConfigError(f"Quadratics needs noise >= 0, got noise={self.noise}.")

    @property
    def workers(self) -> int:
        """The number of functions, M."""
        return len(self.optima)

    @property
    def dim(self) -> int:
        """The number of parameters, d."""
        return len(self.optima[0])

    def loss(self, x: Floats) -> float:
        """The mean of the workers' functions at ``x``."""
        away = x - self.optima
        return float(np.einsum("ij,ij->", away, self._times(away)) / (2 * self.workers))

    def gradient(self, x: Floats, worker: int) -> Floats:
        """Gradient of one worker's function at ``x``, without noise."""
        hessian, away = self.hessians[worker], x - self.optima[worker]
        exact: Floats = hessian @ away if hessian.ndim == 2 else hessian * away
        return exact

    def optimum(self) -> Floats:
        """The minimum of the mean of the functions: ``(sum H_i) x = sum H_i optima[i]``."""
        total, pull = self.hessians.sum(axis=0), self._times(self.optima).sum(axis=0)
        least: Floats = np.linalg.solve(total, pull) if total.ndim == 2 else pull / total
        return least

    def _times(self, vectors: Floats) -> Floats:
        """``H_i v_i`` for every worker i."""
        if self.hessians.ndim == 2:
            return self.hessians * vectors
        return (self.hessians @ vectors[..., np.newaxis])[..., 0]


def random_quadratics(
    workers: int,
    dim: int,
    *,
    heterogeneity: float = 1.0,
    condition: float = 10.0,
    noise: float = 0.0,
    seed: int = 0,
) -> Quadratics:
    """Quadratics with curvatures from ``1 / condition`` to 1, along different axes per worker.

    The workers' optima lie at a distance of about ``heterogeneity`` from the origin: at 0 all
    agree. The smoothness of every function is L = 1 (for ``dim = 1`` too).
    """
    if workers < 1 or dim < 1 or condition < 1 or heterogeneity < 0:
        raise ConfigError(
            "random_quadratics needs workers >= 1, dim >= 1, condition >= 1 and heterogeneity >= "
            f"0, got workers={workers}, dim={dim}, condition={condition}, "
            f"heterogeneity={heterogeneity}."
        )
    rng = np.random.default_rng(seed)
    curvatures = np.geomspace(1, 1 / condition, dim)
    axes = np.linalg.qr(rng.normal(size=(workers, dim, dim))).Q
    hessians = (axes * curvatures) @ axes.transpose(0, 2, 1)
    optima = rng.normal(0, heterogeneity / np.sqrt(dim), (workers, dim))
    return Quadratics((hessians + hessians.transpose(0, 2, 1)) / 2, optima, noise)
