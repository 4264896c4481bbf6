"""The seam between an algorithm and whoever runs it: a server process or a simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Protocol, TypeGuard, TypeVar, final

import numpy as np

from anarchic.core.arrays import (
    all_finite,
    copied,
    fits,
    is_floating,
    norm_at_most,
    norms,
    norms_at_most,
    readable,
    square_limit,
)
from anarchic.core.types import Integers, Update, Updates, Vector
from anarchic.errors import ConfigError, MalformedUpdate, NotFinite, StaleUpdate
from anarchic.kernels import loops


class State(Protocol):
    """The moving numbers of a rule. ``params`` and ``extras`` are what workers pull."""

    @property
    def params(self) -> Vector: ...
    @property
    def version(self) -> int: ...
    @property
    def extras(self) -> Mapping[str, Vector]: ...


MOST = 2**31 - 1  # steps or samples that a worker can claim

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

    def scale(self, local_lr: float, local_steps: int) -> float:
        """What the rule multiplies a fresh update's direction by before it takes the mean."""

    def remaining(self, state: S) -> int:
        """How many more updates until the next step; at least 1."""

    def flush(self, state: S) -> S:
        """Step now with what has arrived since the last step; nothing if that is nothing."""


@final
@dataclass(frozen=True, slots=True)
class Vetted(Update):
    """An update that ``vetted`` has read, so that a rule which is handed it need not.

    Whoever has one made sees to it that its vectors do not change until they are folded.
    """

    longest: float = np.inf  # none of its vectors has a greater norm
    norm: float | None = None  # of its direction, where that was measured


def check(
    update: Update,
    *,
    params: Vector,
    version: int,
    oldest: int = 0,
    extras: frozenset[str] = frozenset(),
) -> float:
    """Refuse an update whose numbers cannot be right; O(d), allocates nothing.

    Returns the norm of its direction. ``version`` is the one that it meets, ``oldest`` the oldest
    base version that will do.
    """
    _check_claims(update, params, version, oldest, extras)
    norm = float(norms(update.direction[None])[0])
    _longest(update, params, norm)
    return norm


def vet(
    update: Update,
    *,
    params: Vector,
    version: int,
    oldest: int = 0,
    extras: frozenset[str] = frozenset(),
) -> None:
    """Refuse what ``check`` refuses. It reads the update once, unless somebody has."""
    _check_claims(update, params, version, oldest, extras)
    if not _was_read(update, params):
        _longest(update, params)


def vetted(
    update: Update,
    *,
    params: Vector,
    version: int,
    oldest: int = 0,
    extras: frozenset[str] = frozenset(),
    measured: bool = False,
) -> Vetted:
    """The update as one that passed ``vet``; ``measured``: with the norm of its direction."""
    _check_claims(update, params, version, oldest, extras)
    if _was_read(update, params) and not (measured and update.norm is None):
        return update
    norm = float(norms(update.direction[None])[0]) if measured else None
    longest = _longest(update, params, norm)
    values = {each.name: getattr(update, each.name) for each in fields(Update)}
    return Vetted(**values, longest=longest, norm=norm)


def _check_claims(
    update: Update, params: Vector, version: int, oldest: int, extras: frozenset[str]
) -> None:
    """All that can be checked without reading a vector."""
    _check_form(update, params, extras)
    _check_numbers(update)
    _check_base(update, oldest, version)


def _was_read(update: Update, params: Vector) -> TypeGuard[Vetted]:
    """Whether it is known that nothing in the update reaches too far, at the rate it has now."""
    return isinstance(update, Vetted) and _scale_of(update, update.longest) < square_limit(params)


def _longest(update: Update, params: Vector, norm: float | None = None) -> float:
    """The norm, about, of the longest of its vectors, none of which may reach too far.

    ``norm`` is that of the direction, where it is known.
    """
    limit, longest = square_limit(params), 0.0
    for name, vector in (*update.extras.items(), ("direction", update.direction)):
        known = norm if vector is update.direction else None
        length = norm_at_most(vector) if known is None else known
        if not _scale_of(update, length) < limit:
            _check_length(update, name, vector, params)
        longest = max(longest, length)
    return longest


def _check_form(update: Update, params: Vector, extras: frozenset[str]) -> None:
    """Names, shapes and dtypes; looks at no value."""
    if not extras.issuperset(update.extras):
        raise MalformedUpdate(
            f"The update of worker {update.worker!r} carries extras {sorted(update.extras)}, the "
            f"rule knows {sorted(extras)}: run a local rule that goes with the server's rule."
        )
    for name, vector in (*update.extras.items(), ("direction", update.direction)):
        _check_vector(f"{name} of worker {update.worker!r}", vector, params)


def _check_length(update: Update, name: str, vector: Vector, params: Vector) -> None:
    norm = float(norms(vector[None])[0])
    if not _scale_of(update, norm) < square_limit(params):
        raise NotFinite(
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
    """The checks of ``vet`` for every update of a block, before any of them is folded.

    But for the numbers on a GPU: the host would wait for them. A simulation, and nobody else has
    them there, looks at the parameters that come of them.
    """
    if len(block):  # names, shapes and dtypes are common to the block: one row answers for all
        _check_form(block.row(0), params, extras)
    # Beyond this the square, as in the Adam step, could overflow the model's dtype.
    limit = square_limit(params)
    suspect = (
        (block.local_steps < 1)
        | (block.local_steps > MOST)
        | ~(block.local_lrs > 0)
        | (block.samples < 0)
        | (block.samples > MOST)
        | (block.base_versions < oldest)
        | (block.base_versions > versions)
    )
    with np.errstate(over="ignore", invalid="ignore"):
        factors = np.maximum(block.local_lrs * block.local_steps, 1.0)
        for matrix in filter(readable, (block.directions, *block.extras.values())):
            suspect |= ~(factors * np.maximum(norms_at_most(matrix), 1.0) < limit)
    for row in np.flatnonzero(suspect).tolist():
        version, least = int(versions[row]), int(oldest[row])
        vet(block.row(row), params=params, version=version, oldest=least, extras=extras)


def start(params: Vector) -> Vector:
    """A copy of a model's first parameters, which must be one vector of finite floats."""
    if params.ndim != 1 or not is_floating(params):
        raise ConfigError(
            f"The parameters have shape {params.shape} and dtype {params.dtype}; a rule works on "
            "one vector of floats: see Layout.join."
        )
    if not all_finite(params):
        raise ConfigError("The first parameters are not all finite: initialise the model anew.")
    loops.prepare(params)
    copy: Vector = copied(params)
    return copy


def versions_met(version: int, count: int, m: int, updates: int) -> Integers:
    """The version that each of the next ``updates`` meets, ``count`` having arrived since it."""
    return version + (count + np.arange(updates)) // m


def _check_numbers(update: Update) -> None:
    steps, rate, samples = update.local_steps, update.local_lr, update.samples
    if not (1 <= steps <= MOST and 0 <= samples <= MOST and 0 < rate < np.inf):
        raise MalformedUpdate(
            f"Worker {update.worker!r} reports local_steps={steps}, local_lr={rate}, "
            f"samples={samples}; it must take at least one step at a positive, finite rate, and "
            f"neither steps nor samples may exceed {MOST}."
        )


def _check_base(update: Update, oldest: int, version: int) -> None:
    if not oldest <= update.base_version <= version:
        raise StaleUpdate(
            f"Worker {update.worker!r} started from version {update.base_version}; the rule takes "
            f"updates that start from versions {oldest} to {version}: pull the model again."
        )


def _check_vector(what: str, vector: Vector, params: Vector) -> None:
    if vector.shape != params.shape or not fits(vector, params):
        raise MalformedUpdate(
            f"The {what} has shape {vector.shape} and dtype {vector.dtype}, the model "
            f"{params.shape} and {params.dtype}: send one number for each parameter."
        )


def _scale_of(update: Update, norm: float) -> float:
    """The furthest that any rule moves along a vector, before the server's rate.

    At least each of its factors: an endless rate of nothing would still be infinity times zero.
    """
    return max(float(update.local_lr) * int(update.local_steps), 1.0) * max(norm, 1.0)
