"""Keras 3 models, whatever their backend: trained weights travel, and moving averages may.

with visit(worker, model) as v:
    model.fit(x, y)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from anarchic.bridges.visit import Tensors, Visit
from anarchic.bridges.visit import write_first_model as write_tensors
from anarchic.core.options import says_options
from anarchic.core.types import Layout
from anarchic.errors import ConfigError

if TYPE_CHECKING:
    from anarchic.worker import Worker


@says_options
def visit(worker: Worker, model: Any, *, lr: float | None = None) -> Visit:
    """A visit that pulls into the model and pushes what its training has changed.

    Weights of frozen layers stay as they are. Moving averages, as of BatchNormalization, travel if
    the server's model has them, and else stay with the worker.
    """
    trained, statistics = variables(model)

    def travelling() -> dict[str, Any]:
        there = {name for name in statistics if name in worker.layout.names}
        return trained | {name: statistics[name] for name in there}

    def read() -> Tensors:
        import keras

        return {name: keras.ops.convert_to_numpy(v) for name, v in travelling().items()}

    def write(tensors: Tensors) -> None:
        for name, variable in travelling().items():
            variable.assign(tensors[name])

    return Visit(worker, read, write, lr=lr)


def write_first_model(
    path: Path | str, model: Any, *, buffers: Literal["average", "local"] = "average"
) -> Layout:
    """Write the model's weights for ``anarchic serve --init``.

    Moving averages are averaged by the server, or each worker keeps its own (``local``).
    """
    import keras

    if buffers not in ("average", "local"):
        raise ConfigError(
            f"There is no policy for buffers {buffers!r}; there are average and local."
        )
    trained, statistics = variables(model)
    averaged, kept = (statistics, {}) if buffers == "average" else ({}, statistics)
    arrays = {name: keras.ops.convert_to_numpy(v) for name, v in (trained | averaged).items()}
    return write_tensors(path, arrays, buffers=averaged, local=kept)


def variables(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is trained, and moving averages, each by its place in the model and its own name.

    The names that Keras gives to layers count up with every model of a process, so they are no
    use here: ``004.kernel`` is the fifth weight.
    """
    if not model.built:
        raise ConfigError(
            f"The model {model.name!r} has no weights yet: give it an Input, call "
            "model.build(shape), or call it once on data."
        )
    names = {id(v): f"{place:03d}.{v.name}" for place, v in enumerate(model.weights)}
    trained = {names[id(v)]: v for v in model.trainable_weights}
    frozen = {
        id(v)
        for layer in model._flatten_layers()  # no public way reaches layers inside layers
        if not layer.trainable
        for v in layer.weights
    }
    statistics = {names[id(v)]: v for v in model.weights if not v.trainable and id(v) not in frozen}
    if not trained:
        raise ConfigError(f"The model {model.name!r} has nothing to train: all of it is frozen.")
    return trained, statistics
