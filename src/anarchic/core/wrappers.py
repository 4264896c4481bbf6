"""Rules around a rule.

``StalenessDiscount`` and ``Clip`` change how much an update counts. Every rule uses a direction
only through ``local_lr * direction``, so they scale ``local_lr``: that costs nothing and copies
nothing. ``SharedVectors`` adds vectors that travel beside the model. ``Guard`` has its own module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ulp
from typing import TYPE_CHECKING, Any, ClassVar, Generic, final

import numpy as np
from numpy.typing import NDArray

from anarchic.core.arrays import norms, stack, zeros
from anarchic.core.checking import check
from anarchic.core.rows import WorkerRows
from anarchic.core.rule import Rule, S, versions_met
from anarchic.core.types import EMPTY, Integers, Update, Updates, Vector
from anarchic.errors import ConfigError

if TYPE_CHECKING:
    from anarchic.core.guard import GuardRecord

LEAST = ulp(0.0)  # rate: 0 would be refused, and an update that was accepted must count


@dataclass(frozen=True)
class Wrapper(Generic[S]):
    """What the rule inside says, whatever is around it.

    A subclass says ``receive`` and ``receive_many``. Its state is that of the rule inside; where it
    needs more, derive it from ``StatefulWrapper``.
    """

    rule: Rule[S]

    @property
    def m(self) -> int:
        return self.rule.m

    @property
    def takes_late(self) -> bool:
        return self.rule.takes_late

    @cached_property  # asked for with every update, and a rule may have to make a state to know
    def remembers(self) -> int | None:
        return self.rule.remembers

    @property
    def innermost(self) -> Rule[Any]:
        return self.rule.innermost

    def scale(self, local_lr: float, local_steps: int) -> float:
        return self.rule.scale(local_lr, local_steps)

    def folded_scale(self, local_lr: float, local_steps: int, staleness: int, norm: float) -> float:
        return self.rule.folded_scale(local_lr, local_steps, staleness, norm)

    def init(self, params: Vector) -> Any:
        return self.rule.init(params)

    def remaining(self, state: Any) -> int:
        return self.rule.remaining(state)

    def flush(self, state: Any) -> Any:
        return self.rule.flush(state)

    def forget(self, state: Any, worker: str) -> bool:
        return self.rule.forget(state, worker)

    def rows(self, state: Any) -> dict[str, WorkerRows]:
        return self.rule.rows(state)

    def guard_record(self, state: Any) -> GuardRecord | None:
        return self.rule.guard_record(state)

    def scales(self, block: Updates) -> NDArray[np.float64]:
        """The scale of every update of a block."""
        columns = (block.local_lrs.tolist(), block.local_steps.tolist())
        return np.fromiter(map(self.scale, *columns), np.float64, len(block))


@dataclass(frozen=True)
class Reweighted(Wrapper[S], ABC):
    """A rule that sees updates with another ``local_lr``."""

    by_length: ClassVar[bool] = True  # whether the factor depends on it: it is not measured if not

    @abstractmethod
    def factor(self, staleness: int, length: float) -> float:
        """What to multiply ``local_lr`` by; ``length`` is the norm of what the rule would fold."""

    def reweighted(self, block: Updates, staleness: Integers) -> Updates:
        """The block as the rule inside sees it."""
        lengths = self.scales(block) * norms(block.directions) if self.by_length else 0 * staleness
        factors = list(map(self.factor, staleness.tolist(), lengths.tolist()))
        rates = block.local_lrs * np.array(factors, np.float64)
        return replace(block, local_lrs=np.maximum(rates, LEAST))

    def folded_scale(self, local_lr: float, local_steps: int, staleness: int, norm: float) -> float:
        rate = local_lr * self.factor(staleness, self.scale(local_lr, local_steps) * norm)
        return self.rule.folded_scale(rate, local_steps, staleness, norm)

    def receive(self, state: S, update: Update) -> S:
        # A factor of numbers that cannot be right would hide them from the rule inside.
        params, version, extras = state.params, state.version, frozenset(update.extras)
        measured = self.by_length
        seen = check(update, params=params, version=version, extras=extras, measured=measured)
        rate, steps = float(update.local_lr), int(update.local_steps)
        length = self.scale(rate, steps) * (seen.norm or 0.0)
        factor = self.factor(version - update.base_version, length)
        return self.rule.receive(state, replace(seen, local_lr=max(rate * factor, LEAST)))

    def receive_many(self, state: S, block: Updates) -> S:
        versions = versions_met(self.rule, state, block)
        check(block, params=state.params, version=versions, extras=frozenset(block.extras))
        staleness = versions - block.base_versions
        return self.rule.receive_many(state, self.reweighted(block, staleness))


@final
@dataclass(frozen=True)
class StalenessDiscount(Reweighted[S]):
    """Late updates count less: local_lr becomes local_lr * (1 + tau)^-power.

    Symbols: tau is the version that the step starts from minus the update's base version.
    Reference: the polynomial discount of Xie, Koyejo, Gupta, arXiv:1903.03934, section 5.2.
    Departs from it in: it scales an update of any rule, not a mixing weight.
    """

    power: float = 0.5
    by_length = False

    def __post_init__(self) -> None:
        if not self.power >= 0:
            raise ConfigError(f"StalenessDiscount needs power >= 0, got power={self.power}.")

    def factor(self, staleness: int, length: float) -> float:
        return float((1 + staleness) ** -self.power)


@final
@dataclass(frozen=True)
class Clip(Reweighted[S]):
    """No update reaches further than ``max_norm``, whatever rate and steps its worker claims.

    It bounds the norm of what the rule takes the mean of (``Rule.scale``): of ``local_lr *
    direction`` in ``AfaCd``, ``AfaCs`` and others whose steps do not depend on ``local_steps``, of
    ``local_steps`` times that in ``FedAvg``, ``FedBuff`` and others that go by the displacement,
    before they discount it. ``FedAvg(by_samples=True)`` weighs it by the samples that are claimed:
    no step is longer for that, but it may be all of one worker.
    """

    max_norm: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.max_norm < np.inf:
            raise ConfigError(f"Clip needs a positive max_norm, got max_norm={self.max_norm}.")

    def factor(self, staleness: int, length: float) -> float:
        return min(1.0, self.max_norm / length) if length > 0 else 1.0

    def reweighted(self, block: Updates, staleness: Integers) -> Updates:
        if isinstance(block.directions, np.ndarray):
            return super().reweighted(block, staleness)
        # Of tensors the direction is scaled: a rate is the host's, which would wait for the norm.
        scales = stack(list(map(self._scale, block.directions, self.scales(block).tolist())))
        scaled = block.directions * scales.to(block.directions.dtype)
        return replace(block, directions=scaled)

    def _scale(self, direction: Any, scale: float) -> Any:
        """(1,) ``factor``, where the direction lies."""
        length = scale * direction.double().square().sum(0, keepdim=True).sqrt()
        return (self.max_norm / length).clamp(max=1)


class WrapperState(Generic[S]):
    """A state around that of the rule inside, whose model it publishes.

    A subclass is a dataclass. A field of its own in place of a property below is a ``field()``: the
    property would be taken for its default.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # the first field of the subclass
        inner: S

    @property
    def params(self) -> Vector:
        return self.inner.params

    @property
    def version(self) -> int:
        return self.inner.version

    @property
    def extras(self) -> Mapping[str, Vector]:
        return self.inner.extras


class StatefulWrapper(Wrapper[S]):
    """A wrapper that keeps something: its state is a ``WrapperState``."""

    def after_step(self, state: Any) -> Any:
        """The state to go on with when the rule inside has stepped."""
        return state

    def remaining(self, state: Any) -> int:
        return self.rule.remaining(state.inner)

    def flush(self, state: Any) -> Any:
        version = state.version
        state.inner = self.rule.flush(state.inner)
        return self.after_step(state) if state.version > version else state

    def forget(self, state: Any, worker: str) -> bool:
        return self.rule.forget(state.inner, worker)

    def rows(self, state: Any) -> dict[str, WorkerRows]:
        return {f"inner.{name}": rows for name, rows in self.rule.rows(state.inner).items()}

    def guard_record(self, state: Any) -> GuardRecord | None:
        return self.rule.guard_record(state.inner)


@dataclass(slots=True)
class SharedVectorsState(WrapperState[S]):
    """The state of the rule inside, the published extras, and what will be added to them."""

    inner: S
    extras: dict[str, Vector] = field()
    pending: dict[str, Vector]


@final
@dataclass(frozen=True)
class SharedVectors(StatefulWrapper[S]):
    """Vectors that travel beside the model: pulled with it, changed by what updates bring back.

        c_{t+1} = c_t + (1/M) * sum over the round's updates of e_i

    for every name in ``names``, where e_i is the update's extra of that name and M the
    ``population``. With ``names=("control",)`` this is the server's half of SCAFFOLD
    (Karimireddy et al., ICML 2020, arXiv:1910.06378, Algorithm 1, line 17). Departs from it in:
    the rule inside may be any; an update without such an extra counts as one of zero, so that
    workers with other local rules can take part.
    """

    names: tuple[str, ...]
    population: int

    def __post_init__(self) -> None:
        if self.population < 1 or not self.names or isinstance(self.names, str):
            raise ConfigError(
                "SharedVectors needs a tuple of at least one name and a population >= 1, got "
                f"names={self.names!r}, population={self.population}."
            )

    def init(self, params: Vector) -> SharedVectorsState[S]:
        inner = self.rule.init(params)
        extras, pending = ({name: zeros(inner.params) for name in self.names} for _ in range(2))
        return SharedVectorsState(inner, extras, pending)

    def receive(self, state: SharedVectorsState[S], update: Update) -> SharedVectorsState[S]:
        names, version = frozenset(self.names), state.version
        seen = check(update, params=state.params, version=version, extras=names)
        state.inner = self.rule.receive(state.inner, replace(seen, extras=EMPTY))
        self._add(state, update.extras)
        return self.after_step(state) if state.version > version else state

    def receive_many(self, state: SharedVectorsState[S], block: Updates) -> SharedVectorsState[S]:
        versions = versions_met(self.rule, state.inner, block)
        check(block, params=state.params, version=versions, extras=frozenset(self.names))
        remaining = self.rule.remaining(state.inner)
        # The whole block at once: the rule inside may yet refuse it.
        state.inner = self.rule.receive_many(state.inner, replace(block, extras=EMPTY))
        for row in range(len(block)):
            self._add(state, {name: matrix[row] for name, matrix in block.extras.items()})
            if row + 1 >= remaining and (row + 1 - remaining) % self.m == 0:
                state = self.after_step(state)
        return state

    def _add(self, state: SharedVectorsState[S], extras: Mapping[str, Vector]) -> None:
        for name, vector in extras.items():
            state.pending[name] += vector

    def after_step(self, state: SharedVectorsState[S]) -> SharedVectorsState[S]:
        changes = {name: vector / self.population for name, vector in state.pending.items()}
        state.extras = {name: state.extras[name] + changes[name] for name in self.names}
        for vector in state.pending.values():
            vector[:] = 0
        return state
