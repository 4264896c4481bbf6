"""A worker in NumPy: logistic regression on data that never leave it. Needs a running server.

anarchic init --task examples.numpy_worker:task --out model.safetensors
anarchic serve --init model.safetensors --store run.db --m 1 --open-enrolment
python examples/numpy_worker.py http://127.0.0.1:8780 ann
"""

import sys

import numpy as np

from anarchic import Layout
from anarchic.worker import Exponential, FunctionTask, UniformSteps, Worker, WorkPlan

rng = np.random.default_rng()
x = rng.normal(size=(500, 3)).astype(np.float32)  # this worker's own samples
y = (x @ [1.0, -2.0, 0.5] + 0.3 > 0).astype(np.float32)

layout = Layout.of({"weight": ((3,), "F32"), "bias": ((1,), "F32")})


def gradient(params):
    """One local step: a random batch, its gradient, its loss, and how many samples are held."""
    model, batch = layout.split(params), rng.integers(len(y), size=32)
    chance = 1 / (1 + np.exp(-(x[batch] @ model["weight"] + model["bias"])))
    off = (chance - y[batch]) / len(batch)
    right = np.where(y[batch] == 1, chance, 1 - chance)
    tensors = {"weight": x[batch].T @ off, "bias": off.sum(keepdims=True)}
    return layout.join(tensors), -np.log(right + 1e-9).mean(), len(y)


task = FunctionTask(layout, gradient, init=lambda: np.zeros(layout.dim, np.float32))

if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__)
        sys.exit(0)
    url, name = sys.argv[1:]
    # Idle for 0.1 s on average, then take 5 to 20 local steps; 50 times.
    plan = WorkPlan(Exponential(0.1), UniformSteps(5, 20), local_lr=0.5, updates=50)
    with Worker(url, name=name, spool=f"spool-{name}") as worker:
        print(worker.run(task, plan))
        model = layout.split(worker.pull().params)
    print("weight", model["weight"].round(2), "bias", model["bias"].round(2))
