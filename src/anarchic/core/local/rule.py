"""The seam between a worker's algorithm and whoever computes gradients for it."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

Array = Any  # a NumPy array or a torch tensor, (dim,) or (lanes, dim)
Held = dict[str, Array]


class LocalRule(Protocol):
    """The direction of one local step, and what to hand back at the end.

    A rule names the vectors that it wants to hold beside the model, all of the model's size:
    ``keeps`` stay with the worker from visit to visit (zero at first), ``shares`` are pulled with
    the model and returned with the update, ``scratch`` lives for one visit (zero at its start).
    """

    @property
    def keeps(self) -> tuple[str, ...]: ...
    @property
    def shares(self) -> tuple[str, ...]: ...
    @property
    def scratch(self) -> tuple[str, ...]: ...
    @property
    def plain(self) -> bool:
        """Whether a step is along the gradient itself, so that a loop may do whole visits."""

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        """The direction of a step at ``x``; may set the ``scratch`` entries of ``held``."""

    def finish(self, mean: Array, held: Held) -> tuple[Held, Held]:
        """What the worker keeps and what it sends, ``mean`` being the update's direction.

        The worker keeps the new vectors only once the update has been accepted.
        """


class Stateless:
    """For rules that hold nothing, or nothing beyond the visit."""

    keeps: ClassVar[tuple[str, ...]] = ()
    shares: ClassVar[tuple[str, ...]] = ()
    scratch: ClassVar[tuple[str, ...]] = ()
    plain: ClassVar[bool] = False

    def finish(self, mean: Array, held: Held) -> tuple[Held, Held]:
        return {}, {}
