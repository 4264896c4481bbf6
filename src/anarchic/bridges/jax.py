"""JAX pytrees: every leaf travels under its path in the tree.

with visit(worker, params) as v:
    v.params = train(v.params)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from anarchic.bridges.visit import Tensors, Visit
from anarchic.bridges.visit import write_first_model as write_tensors
from anarchic.core.options import says_options
from anarchic.core.types import Layout
from anarchic.errors import ConfigError

if TYPE_CHECKING:
    from anarchic.worker import Worker


@final
class PytreeVisit(Visit):
    """A visit that begins with the pulled ``params``; set it to what the training returned."""

    def __init__(self, worker: Worker, params: Any, lr: float | None) -> None:
        super().__init__(worker, self._tensors, self._set, lr=lr)
        self.params = params
        self._tree = _structure(params)

    def _tensors(self) -> Tensors:
        if _structure(self.params) != self._tree:
            raise ConfigError(
                "visit.params has another structure than the tree that the visit was given: set "
                f"it to a tree of {self._tree}, got {_structure(self.params)}."
            )
        return leaves(self.params)

    def _set(self, tensors: Tensors) -> None:
        import jax

        here = zip(leaves(self.params), jax.tree.leaves(self.params), strict=True)
        new = [jax.numpy.array(tensors[name], jax.numpy.asarray(leaf).dtype) for name, leaf in here]
        self.params = jax.tree.unflatten(self._tree, new)


@says_options
def visit(worker: Worker, params: Any, *, lr: float | None = None) -> PytreeVisit:
    """A visit that pulls a tree like ``params`` and pushes what ``visit.params`` then holds."""
    leaves(params)  # or refuse it now
    return PytreeVisit(worker, params, lr)


def write_first_model(
    path: Path | str, params: Any, *, buffers: Callable[[str], bool] = lambda name: False
) -> Layout:
    """Write a tree for ``anarchic serve --init``.

    Leaves whose name ``buffers`` accepts, such as Flax's ``batch_stats``, are averaged and not
    trained.
    """
    tensors = leaves(params)
    return write_tensors(path, tensors, buffers=[name for name in tensors if buffers(name)])


def leaves(params: Any) -> dict[str, Any]:
    """The leaves of a tree as NumPy arrays, by path: ``dense.kernel``, ``layers.0.bias``."""
    import jax

    found: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "params"
        if name in found:
            raise ConfigError(f"Two leaves of the tree are named {name!r}: rename one of them.")
        if not jax.numpy.issubdtype(jax.numpy.asarray(leaf).dtype, jax.numpy.floating):
            raise ConfigError(
                f"The leaf {name!r} is a {jax.numpy.asarray(leaf).dtype}, which no average of "
                "changes gives: keep it outside the tree that travels."
            )
        found[name] = np.asarray(leaf)
    if not found:
        raise ConfigError("The tree has no leaves: there is nothing to train.")
    return found


def _structure(params: Any) -> Any:
    import jax

    return jax.tree.structure(params)
