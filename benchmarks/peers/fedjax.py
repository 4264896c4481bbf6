"""FedJAX: its federated averaging, jitted. Its pmap backend asks for names that jax has dropped.

python -m benchmarks.peers.fedjax W1 150 RESULT.json
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

jax.tree_map = jax.tree_util.tree_map  # fedjax 0.0.17 asks for the name that jax had before 0.6

import fedjax  # noqa: E402 - after the line above

from benchmarks.workloads import (  # noqa: E402
    Array,
    Clock,
    Held,
    Workload,
    asked,
    held,
    report,
)

Params = dict[str, Any]
DENSE = ("dense1", "dense2", "dense3")


def main() -> None:
    workload, into, _ = asked()
    dealt, clock = held(workload), Clock()
    models = {"logistic": logistic, "cnn": cnn, "lstm": lstm}
    forward, start, back = models[workload.model](dealt.start)
    algorithm = averaging(workload, forward)
    sampler = fedjax.client_samplers.UniformGetClientSampler(
        fd=clients(workload, dealt), num_clients=workload.m, seed=0
    )
    state = algorithm.init(start)
    clock.mark()
    for _ in range(workload.rounds):
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
        clock.mark()
    names = ("fedjax", "jax", "jaxlib")
    mine = {name: version(name) for name in names}
    report(into, clock, back(state.params), local_steps=workload.local_steps, versions=mine)


def averaging(workload: Workload, forward: Callable[[Params, Any], Any]) -> Any:
    def loss(params: Params, batch: dict[str, Any], rng: Any) -> Any:
        logs = jax.nn.log_softmax(forward(params, batch["x"]))
        return -jnp.mean(jnp.take_along_axis(logs, batch["y"][:, None], 1))

    return fedjax.algorithms.fed_avg.federated_averaging(
        jax.jit(jax.grad(loss)),
        fedjax.optimizers.sgd(learning_rate=workload.lr),
        fedjax.optimizers.sgd(learning_rate=1.0),
        fedjax.ShuffleRepeatBatchHParams(
            batch_size=workload.batch,
            num_epochs=None,
            num_steps=workload.steps,
            drop_remainder=True,
        ),
    )


def clients(workload: Workload, dealt: Held) -> Any:
    def laid(x: Array) -> Array:  # XLA wants channels last
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if x.ndim == 4 else x

    return fedjax.InMemoryFederatedData(
        {
            str(number): {"x": laid(x), "y": y.astype(np.int32)}
            for number, (x, y) in enumerate(dealt.parts())
        }
    )


def logistic(start: dict[str, Array]) -> tuple[Any, Params, Any]:
    """The forward pass, its first parameters, and the way back to PyTorch's form."""

    def forward(params: Params, x: Any) -> Any:
        return x @ params["w"] + params["b"]

    def back(params: Params) -> dict[str, Array]:
        return {"weight": np.array(params["w"]).T, "bias": np.array(params["b"])}

    first = {"w": jnp.asarray(start["weight"].T), "b": jnp.asarray(start["bias"])}
    return forward, first, back


def cnn(start: dict[str, Array]) -> tuple[Any, Params, Any]:
    """The same for the network: kernels and the first dense layer change their order."""

    def convolved(x: Any, layer: Params) -> Any:
        order = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x, layer["w"], (1, 1), "VALID", dimension_numbers=order)
        x = jax.nn.relu(x + layer["b"])
        window = (1, 2, 2, 1)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")

    def forward(params: Params, x: Any) -> Any:
        x = convolved(convolved(x, params["conv1"]), params["conv2"])
        x = x.reshape(len(x), -1)
        for name in DENSE[:2]:
            x = jax.nn.relu(x @ params[name]["w"] + params[name]["b"])
        return x @ params["dense3"]["w"] + params["dense3"]["b"]

    def back(params: Params) -> dict[str, Array]:
        found = {f"{name}.bias": np.array(layer["b"]) for name, layer in params.items()}
        for name in ("conv1", "conv2"):
            found[f"{name}.weight"] = np.array(params[name]["w"]).transpose(3, 2, 0, 1)
        for name in DENSE:
            found[f"{name}.weight"] = np.array(params[name]["w"]).T
        dense1 = found["dense1.weight"].reshape(512, 4, 4, 64).transpose(0, 3, 1, 2)
        found["dense1.weight"] = dense1.reshape(512, -1)
        return found

    first: Params = {}
    for name in ("conv1", "conv2"):
        first[name] = {"w": start[f"{name}.weight"].transpose(2, 3, 1, 0)}
    for name in DENSE:
        first[name] = {"w": start[f"{name}.weight"].T}
    dense1 = start["dense1.weight"].reshape(512, 64, 4, 4).transpose(0, 2, 3, 1)
    first["dense1"]["w"] = dense1.reshape(512, -1).T
    for name, layer in first.items():
        first[name] = {"w": jnp.asarray(layer["w"]), "b": jnp.asarray(start[f"{name}.bias"])}
    return forward, first, back


def lstm(start: dict[str, Array]) -> tuple[Any, Params, Any]:
    """The same for the LSTM, whose parameters stay as PyTorch has them."""

    def layer(params: Params, number: int, x: Any) -> Any:  # (time, batch, features)
        inner, outer, *biases = (
            params[f"lstm.{name}_l{number}"]
            for name in ("weight_hh", "weight_ih", "bias_ih", "bias_hh")
        )
        gates = x @ outer.T + sum(biases)
        nothing = jnp.zeros((x.shape[1], inner.shape[1]))

        def step(carry: Any, gates: Any) -> Any:
            state, cell = carry
            i, f, g, o = jnp.split(gates + state @ inner.T, 4, axis=1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            state = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (state, cell), state

        return jax.lax.scan(step, (nothing, nothing), gates)[1]

    def forward(params: Params, tokens: Any) -> Any:
        x = params["embedding.weight"][tokens.T.astype(jnp.int32)]
        x = layer(params, 1, layer(params, 0, x))
        return x[-1] @ params["dense.weight"].T + params["dense.bias"]

    def back(params: Params) -> dict[str, Array]:
        return {name: np.array(value) for name, value in params.items()}

    return forward, {name: jnp.asarray(value) for name, value in start.items()}, back


if __name__ == "__main__":
    main()
