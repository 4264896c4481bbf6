"""JAX pytrees as workers, at a real server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

from anarchic.bridges.jax import leaves, visit, write_first_model
from anarchic.errors import ConfigError
from tests.bridges.serving import INIT, await_version, two_workers
from tests.bridges.still import StillWorker
from tests.kinds.outcome import learnt


def first_params():
    one, two = jax.random.split(jax.random.key(0))
    hidden = {"kernel": 0.5 * jax.random.normal(one, (2, 16)), "bias": jnp.zeros(16)}
    out = {"kernel": 0.5 * jax.random.normal(two, (16,)).astype(jnp.bfloat16), "bias": 0.0}
    return {"layers": [hidden, out]}


def predict(params, x):
    hidden, out = params["layers"]
    return jnp.tanh(x @ hidden["kernel"] + hidden["bias"]) @ out["kernel"] + out["bias"]


def loss(params, x, y):
    return jnp.mean(jnp.logaddexp(0.0, -y * predict(params, x)))


@jax.jit
def train(params, x, y):
    def step(params, _):
        gradient = jax.grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: (p - 0.5 * g).astype(p.dtype), params, gradient), None

    return jax.lax.scan(step, params, None, length=20)[0]


def test_two_workers_learn_a_pytree_together(tmp_path: Path):
    x = np.random.default_rng(0).normal(size=(800, 2)).astype(np.float32)
    y = np.sign(x[:, 0] * x[:, 1])
    params = first_params()
    layout = write_first_model(tmp_path / INIT, params)
    assert layout.names == (
        "layers.0.bias", "layers.0.kernel", "layers.1.bias", "layers.1.kernel",
    )  # fmt: skip
    before = right(params, x, y)
    assert before < 0.7
    with two_workers(tmp_path) as workers:
        for version in range(1, 16):
            for part, worker in enumerate(workers):
                mine = slice(part, None, 2)
                with visit(worker, params) as v:
                    v.params = train(v.params, x[mine], y[mine])
                    v.loss = loss(v.params, x[mine], y[mine])
            await_version(workers[0], version)
        assert v.params["layers"][1]["kernel"].dtype == jnp.bfloat16
        newest = layout.split(workers[0].pull().params)
    leaf = jax.tree.structure(params)
    trained = jax.tree.unflatten(leaf, [jnp.asarray(newest[name]) for name in leaves(params)])
    learnt(before, right(trained, x, y), 0.85)


def right(params, x, y) -> float:
    return float(np.mean(np.sign(predict(params, x)) == y))


def test_trees_that_cannot_travel_are_refused():
    with pytest.raises(ConfigError, match="'step' is a int32"):
        leaves({"step": jnp.zeros((), jnp.int32)})
    with pytest.raises(ConfigError, match=r"Two leaves of the tree are named 'a\.b'"):
        leaves({"a.b": jnp.zeros(1), "a": {"b": jnp.zeros(1)}})
    with pytest.raises(ConfigError, match="no leaves"):
        leaves({})
    with (
        pytest.raises(ConfigError, match="another structure"),
        visit(StillWorker({"w": np.ones(2)}), {"w": jnp.ones(2)}) as v,
    ):
        v.params = [jnp.ones(2)]


def test_statistics_can_be_named_as_buffers(tmp_path: Path):
    tree = {"params": {"w": jnp.ones(2)}, "batch_stats": {"mean": jnp.zeros(2)}}
    layout = write_first_model(
        tmp_path / INIT, tree, buffers=lambda name: name.startswith("batch_stats.")
    )
    assert layout.buffers == ("batch_stats.mean",)
