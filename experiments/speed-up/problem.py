"""Copies of a quadratic problem, side by side as coordinates of one run, and their errors."""

import numpy as np

from anarchic import Experiment
from anarchic.data.quadratics import Quadratics
from anarchic.sim.engine import Engine


def quadratics(copies: int, workers: int, curvatures: np.ndarray, sigma_local: float) -> Quadratics:
    """Copies of the problem as blocks of coordinates; each has the noise sigma_L^2."""
    dim = copies * len(curvatures)
    hessians = np.tile(curvatures, (workers, copies))
    return Quadratics(hessians, np.zeros((workers, dim)), sigma_local * np.sqrt(copies))


def squared_gradients(experiment: Experiment, copies: int) -> np.ndarray:
    """Mean of ||grad f(x_t)||^2 over t = 0 .. T-1 for every copy; shape (copies,)."""
    engine, total = Engine(experiment), np.zeros(copies)
    curvatures, rounds = experiment.task.functions.hessians[0], experiment.timetable.rounds
    for _ in range(rounds):
        gradient = (curvatures * engine.state.params).reshape(copies, -1)
        total += np.einsum("ij,ij->i", gradient, gradient)
        engine.next_version()
    return total / rounds
