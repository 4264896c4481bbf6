"""Keras 3 models as workers, at a real server; one process per backend, which is fixed by then."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.kinds.outcome import learnt

PROGRAM = """
import sys
from pathlib import Path
import numpy as np
import keras
from anarchic.bridges.keras import variables, visit, write_first_model
from anarchic.errors import ConfigError
from tests.bridges.serving import INIT, await_version, two_workers

folder, policy = Path(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(0)
x = (3 + rng.normal(size=(800, 2))).astype("float32")  # off centre, as BatchNormalization likes it
y = ((x[:, 0] - 3) * (x[:, 1] - 3) > 0).astype("float32")

def make(seed):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([
        keras.Input((2,)), keras.layers.BatchNormalization(momentum=0.5),
        keras.layers.Dense(16, "tanh"), keras.layers.Dropout(0.1), keras.layers.Dense(1, "sigmoid"),
    ])
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=["accuracy"])
    return model

models = [make(0), make(1)]
layout = write_first_model(folder / INIT, models[0], buffers=policy)
statistics = ("002.moving_mean", "003.moving_variance")
assert layout.buffers == (statistics if policy == "average" else ())
assert set(layout.names) >= {"000.gamma", "001.beta", "004.kernel", "005.bias"}
assert ("002.moving_mean" in layout.names) == (policy == "average")
print("before", models[0].evaluate(x, y, verbose=0)[1])
with two_workers(folder) as workers:
    assert workers[0].pull().terms.buffers == policy
    for version in range(1, 9):
        for part, (worker, model) in enumerate(zip(workers, models)):
            mine = slice(part, None, 2)
            with visit(worker, model) as v:
                history = model.fit(x[mine], y[mine], epochs=3, verbose=0)
                v.loss, v.samples = history.history["loss"][-1], len(x[mine])
        await_version(workers[0], version)
    newest = workers[0].layout.split(workers[0].pull().params)
trained, measured = variables(models[0])
for name, variable in (trained | measured).items():
    if name in newest:
        variable.assign(newest[name])
print("after", models[0].evaluate(x, y, verbose=0)[1])
if policy == "average":
    assert np.abs(newest["002.moving_mean"] - 3).max() < 0.3, newest["002.moving_mean"]
    assert (newest["003.moving_variance"] > 0).all()

models[0].layers[0].trainable = False  # frozen: neither its weights nor its averages travel
trained, measured = variables(models[0])
assert not measured and "000.gamma" not in trained and "004.kernel" in trained
try:
    variables(keras.Sequential([keras.layers.Dense(1)]))
except ConfigError as error:
    assert "has no weights yet" in str(error)
else:
    raise AssertionError("a model without weights was taken")
"""


@pytest.mark.parametrize(("backend", "policy"), [("torch", "average"), ("jax", "local")])
def test_two_keras_models_learn_together(backend: str, policy: str, tmp_path: Path):
    for package in ("keras", backend):
        if find_spec(package) is None:
            pytest.skip(f"needs {package}")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), policy],
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": f"{root / 'src'}:{root}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = dict(line.split() for line in done.stdout.splitlines())
    assert float(told["before"]) < 0.7
    learnt(float(told["before"]), float(told["after"]), 0.85)
