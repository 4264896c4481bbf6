"""The one check of updates, before a rule folds them: is this what a worker can have sent?"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np

from anarchic.core.arrays import fits, norms, norms_at_most, readable, square_limit
from anarchic.core.types import Integers, Update, Updates, Vector
from anarchic.errors import MalformedUpdate, NotFinite, StaleUpdate

MOST = 2**31 - 1  # steps or samples that a worker can claim
NO_EXTRAS: frozenset[str] = frozenset()
_NAMES = tuple(each.name for each in fields(Update))


@final
@dataclass(frozen=True, slots=True)
class CheckedUpdate(Update):
    """An update that ``check`` has read, so that a rule which is handed it need not read it again.

    Whoever has one made sees to it that its vectors do not change until they are folded.
    """

    longest: float = np.inf  # none of its vectors has a greater norm
    norm: float | None = None  # of its direction, where that was measured


def check(
    update: Any,
    *,
    params: Vector,
    version: Any,
    oldest: Any = 0,
    extras: frozenset[str] = NO_EXTRAS,
    measured: bool = False,
) -> Any:
    """Refuse an update whose numbers cannot be right, or a block of which one is such.

    ``params`` says what a vector looks like, ``version`` is the one that the update meets (of a
    block: that each of them meets), ``oldest`` the oldest base version that will do, ``extras``
    names the vectors that may come beside the direction. O(d); a vector is read once, and what
    ``check`` has returned is not read again. ``measured``: with the norm of the direction.
    """
    if isinstance(update, Updates):
        _check_block(update, params, version, oldest, extras)
        return update
    _check_form(update, params, extras)
    _check_numbers(update, oldest, version)
    known = isinstance(update, CheckedUpdate) and not (measured and update.norm is None)
    if known and _scale_of(update, update.longest) < square_limit(params):
        return update
    norm = float(norms(update.direction[None])[0]) if measured else None
    plain = {name: getattr(update, name) for name in _NAMES}
    return CheckedUpdate(**plain, longest=_longest(update, params, norm), norm=norm)


def _check_block(
    block: Updates, params: Vector, versions: Integers, oldest: Any, extras: frozenset[str]
) -> None:
    """Every update of a block, before any of them is folded.

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
    if not suspect.any():
        return
    least = np.broadcast_to(oldest, len(block))
    for row in np.flatnonzero(suspect).tolist():
        version, first = int(versions[row]), int(least[row])
        check(block.row(row), params=params, version=version, oldest=first, extras=extras)


def _check_form(update: Update, params: Vector, extras: frozenset[str]) -> None:
    """Names, shapes and dtypes; looks at no value."""
    if not extras.issuperset(update.extras):
        raise MalformedUpdate(
            f"The update of worker {update.worker!r} carries extras {sorted(update.extras)}, the "
            f"rule knows {sorted(extras)}: run a local rule that goes with the server's rule."
        )
    for name, vector in _vectors(update):
        if vector.shape != params.shape or not fits(vector, params):
            raise MalformedUpdate(
                f"The {name} of worker {update.worker!r} has shape {vector.shape} and dtype "
                f"{vector.dtype}, the model {params.shape} and {params.dtype}: send one number for "
                "each parameter."
            )


def _check_numbers(update: Update, oldest: int, version: int) -> None:
    steps, rate, samples = update.local_steps, update.local_lr, update.samples
    if not (1 <= steps <= MOST and 0 <= samples <= MOST and 0 < rate < np.inf):
        raise MalformedUpdate(
            f"Worker {update.worker!r} reports local_steps={steps}, local_lr={rate}, "
            f"samples={samples}; it must take at least one step at a positive, finite rate, and "
            f"neither steps nor samples may exceed {MOST}."
        )
    if not oldest <= update.base_version <= version:
        raise StaleUpdate(
            f"Worker {update.worker!r} started from version {update.base_version}; the rule takes "
            f"updates that start from versions {oldest} to {version}",
            "pull the model again",
        )


def _longest(update: Update, params: Vector, norm: float | None) -> float:
    """The norm, about, of the longest of its vectors, none of which may reach too far.

    ``norm`` is that of the direction, where it is known.
    """
    limit, longest = square_limit(params), 0.0
    for name, vector in _vectors(update):
        known = norm if vector is update.direction else None
        length = float(norms_at_most(vector[None])[0]) if known is None else known
        longest = max(longest, length)
        if _scale_of(update, length) < limit:
            continue
        exact = float(norms(vector[None])[0])
        if not _scale_of(update, exact) < limit:
            raise NotFinite(
                f"The {name} of worker {update.worker!r} is not finite or far too large (norm "
                f"{exact:g}, local_lr {update.local_lr:g})",
                "lower its local learning rate or clip its gradients",
            )
    return longest


def _vectors(update: Update) -> list[tuple[str, Vector]]:
    return [*update.extras.items(), ("direction", update.direction)]


def _scale_of(update: Update, norm: float) -> float:
    """The furthest that any rule moves along a vector, before the server's rate.

    Each factor counts as at least 1: inf * 0 is nan, so a product would not show either of them.
    """
    return max(float(update.local_lr) * int(update.local_steps), 1.0) * max(norm, 1.0)
