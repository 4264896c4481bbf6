"""The seam between an algorithm and whoever runs it: a server process or a simulator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from anarchic.core.types import Integers, Matrix, Update, Updates, Vector
from anarchic.errors import MalformedUpdate, StaleUpdate


class State(Protocol):
    """The moving numbers of a rule. ``params`` and ``extras`` are what workers pull."""

    @property
    def params(self) -> Vector: ...
    @property
    def version(self) -> int: ...
    @property
    def extras(self) -> Mapping[str, Vector]: ...


MOST_STEPS = 2**31 - 1

S = TypeVar("S", bound=State)


class Rule(Protocol[S]):
    """Frozen settings plus the fold of updates into a state.

    A call consumes the state that it is given (buffers are reused) and returns the next one. It
    never writes to an update, nor to parameters that were published: a step makes new ones.
    ``receive`` checks before it changes anything, so a refused update leaves the state usable.
    """

    def init(self, params: Vector) -> S:
        """The state at version 0."""

    def receive(self, state: S, update: Update) -> S:
        """Fold one update, stepping if it was the last one that a step needs."""

    def receive_many(self, state: S, block: Updates) -> S:
        """The same fold over a block, to the same bytes; refuses the block as a whole."""

    @property
    def m(self) -> int:
        """How many updates make a step."""

    def due(self, state: S) -> int:
        """How many more updates until the next step; at least 1."""

    def flush(self, state: S) -> S:
        """Step now with what has arrived since the last step; nothing if that is nothing."""


def check(
    update: Update,
    *,
    params: Vector,
    version: int,
    oldest: int = 0,
    extras: frozenset[str] = frozenset(),
) -> None:
    """Refuse an update whose numbers cannot be right; O(d), allocates nothing.

    ``version`` is the one that it meets, ``oldest`` the oldest base version that will do.
    """
    if set(update.extras) != extras:
        raise MalformedUpdate(
            f"The update of worker {update.worker!r} carries extras {sorted(update.extras)}, the "
            f"rule wants {sorted(extras)}: run a local rule that goes with the server's rule."
        )
    _check_numbers(update)
    _check_base(update, oldest, version)
    for name, vector in (("direction", update.direction), *update.extras.items()):
        _check_vector(f"{name} of worker {update.worker!r}", vector, params)
        norm = float(_square_norms(vector[None])[0]) ** 0.5
        if not _reach(update.local_lr, update.local_steps, norm) < _limit(params):
            raise MalformedUpdate(
                f"The {name} of worker {update.worker!r} is not finite or far too large (norm "
                f"{norm:g}, local_lr {update.local_lr:g}): lower its local learning rate or clip "
                "its gradients."
            )


def check_block(
    block: Updates,
    *,
    params: Vector,
    versions: Integers,
    oldest: Integers,
    extras: frozenset[str] = frozenset(),
) -> None:
    """The checks of ``check`` for every update of a block, before any of them is folded."""
    limit = _limit(params)
    suspect = (
        (block.local_steps < 1)
        | ~(block.local_lrs > 0)
        | (block.samples < 0)
        | (block.base_versions < oldest)
        | (block.base_versions > versions)
    )
    for matrix in (block.directions, *block.extras.values()):
        norms = np.sqrt(_square_norms(matrix))
        suspect |= ~(_reach(block.local_lrs, block.local_steps, norms) < limit)
    # Shapes, dtypes and names are common to the block: its first row answers for all.
    for row in (*range(min(1, len(block))), *np.flatnonzero(suspect).tolist()):
        check(
            block.row(row),
            params=params,
            version=int(versions[row]),
            oldest=int(oldest[row]),
            extras=extras,
        )


def versions_met(version: int, count: int, m: int, updates: int) -> Integers:
    """The version that each of the next ``updates`` meets, ``count`` having arrived since it."""
    return version + (count + np.arange(updates)) // m


def _check_numbers(update: Update) -> None:
    steps, rate, samples = update.local_steps, update.local_lr, update.samples
    if not 1 <= steps <= MOST_STEPS or samples < 0 or not 0 < rate < np.inf:
        raise MalformedUpdate(
            f"Worker {update.worker!r} reports local_steps={steps}, local_lr={rate}, "
            f"samples={samples}; it must take at least one step at a positive, finite rate."
        )


def _check_base(update: Update, oldest: int, version: int) -> None:
    if not oldest <= update.base_version <= version:
        raise StaleUpdate(
            f"Worker {update.worker!r} started from version {update.base_version}; the rule takes "
            f"updates that start from versions {oldest} to {version}: pull the model again."
        )


def _check_vector(what: str, vector: Vector, params: Vector) -> None:
    fits = np.issubdtype(vector.dtype, np.floating) and np.can_cast(vector.dtype, params.dtype)
    if vector.shape != params.shape or not fits:
        raise MalformedUpdate(
            f"The {what} has shape {vector.shape} and dtype {vector.dtype}, the model "
            f"{params.shape} and {params.dtype}: send one number for each parameter."
        )


def _square_norms(matrix: Matrix) -> NDArray[np.floating[Any]]:
    with np.errstate(over="ignore", invalid="ignore"):
        norms: NDArray[np.floating[Any]] = np.einsum("ij,ij->i", matrix, matrix)
    return norms


def _reach(local_lr: Any, local_steps: Any, norm: Any) -> Any:
    """The furthest that any rule moves along a vector, before the server's rate; floats or rows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.maximum(local_lr * local_steps, 1.0) * norm


def _limit(params: Vector) -> float:
    """Beyond this the square, as in the Adam step, could overflow the model's dtype."""
    return math.sqrt(float(np.finfo(params.dtype).max))
