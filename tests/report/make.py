"""Small recorded runs, without training."""

import numpy as np

from anarchic.core.types import Layout
from anarchic.participation import ConstantSteps, Sampler
from anarchic.sim.record import RunDirectory

ACCURACIES = (0.1, 0.6, 0.8)


def make_run(
    path, *, rule="afa-cd", clock=False, finished=True, accuracies=ACCURACIES, judged=True
):
    """A run of two rounds that was evaluated around each; only ``judged`` ones have accuracy."""
    table = Sampler(2, 1, ConstantSteps(5)).timetable(0, rounds=2)
    record = RunDirectory.create(path, {"rule": rule, "fingerprint": "f"}, table)
    record.start_metrics(
        [
            {
                "round": n,
                "virtual_s": 10.0 * n if clock else None,
                "updates": n,
                "local_steps": 5 * n,
                "train_seconds": 0.5 * n,
                "accuracy": accuracy if judged else None,
                "loss": 1 - accuracy,
            }
            for n, accuracy in enumerate(accuracies)
        ]
    )
    if finished:
        layout = Layout.of({"w": ((2,), "F32")})
        record.finish(layout, np.zeros(2, np.float32), {"final_accuracy": accuracies[-1]}, 2)
    return path
