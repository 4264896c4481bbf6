"""Vectors as tensors of a message: the model's under their own names, others as extras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from anarchic.core.types import Layout
from anarchic.errors import ConfigError
from anarchic.wire.strict import METADATA, build_file

EXTRA = "extra:"  # begins the name of a vector that is not a tensor of the model


def encoded(
    layout: Layout,
    vector: NDArray[Any],
    extras: Mapping[str, NDArray[Any]],
    metadata: dict[str, str],
    dtype: str,
) -> bytes:
    """The model's tensors first, in the layout's order: their bytes are those of the vector."""
    check_names(layout)
    for name, found in (("vector", vector), *extras.items()):
        if found.shape != (layout.dim,):
            raise ConfigError(
                f"The {name} has shape {found.shape}, the model {layout.dim} numbers: give one for "
                "each."
            )
    tensors = layout.split(vector) | {EXTRA + name: beside for name, beside in extras.items()}
    return build_file(tensors, dtype, metadata)


def check_names(layout: Layout) -> None:
    for name in layout.names:
        if name.startswith(EXTRA) or name == METADATA:
            raise ConfigError(
                f"A tensor of the model is called {name!r}, which is reserved in messages: "
                f"rename it, and begin no name with {EXTRA!r}."
            )
