"""Local rules: what a worker does in a local step, and the local steps of one visit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, final

from anarchic.core.arrays import as_like, copied, sqrt
from anarchic.core.types import Layout
from anarchic.errors import ConfigError

__all__ = [
    "Adam", "Held", "LocalRule", "Momentum", "Prox", "Scaffold", "Sgd", "Stateless", "VisitStart"
]  # fmt: skip

Array = Any  # a NumPy array or a torch tensor, (dim,) or (lanes, dim)
Held = dict[str, Array]


class LocalRule(Protocol):
    """The direction of one local step, and what to hand back at the end.

    A rule names the vectors that it wants to hold beside the model, all of the model's size:
    ``keeps`` stay with the worker from visit to visit (zero at first), ``shares`` are pulled with
    the model and returned with the update, ``scratch`` lives for one visit (zero at its start).

    A rule that needs to know the version, the rate or the number of a step also has
    ``begin(start: VisitStart) -> LocalRule``: the rule for one visit, or for lanes of visits, whose
    steps are then taken in order, and which may keep what it likes. See ``begun``.
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
        """The direction of a step at ``x``.

        It may put new vectors into ``held`` under the names of ``scratch`` and ``keeps``.
        """

    def finish(self, mean: Array, held: Held) -> tuple[Held, Held]:
        """What the worker keeps and what it sends, ``mean`` being the update's direction.

        The worker keeps the new vectors only once the update has been accepted.
        """


@dataclass(frozen=True, eq=False, slots=True)
class VisitStart:
    """What is known when a visit starts. For lanes, ``lr`` and ``version`` are (lanes, 1) arrays.

    Both are NumPy's wherever the parameters lie, so that nobody has to wait for a GPU.
    """

    lr: Any  # eta_L
    version: Any  # the version that was pulled
    layout: Layout


def begun(rule: LocalRule, start: VisitStart) -> LocalRule:
    """The rule for one visit: ``rule`` itself, unless it has ``begin``."""
    begin: Callable[[VisitStart], LocalRule] | None = getattr(rule, "begin", None)
    return rule if begin is None else begin(start)


class Stateless:
    """For rules that hold nothing, or nothing beyond the visit."""

    keeps: ClassVar[tuple[str, ...]] = ()
    shares: ClassVar[tuple[str, ...]] = ()
    scratch: ClassVar[tuple[str, ...]] = ()
    plain: ClassVar[bool] = False

    def finish(self, mean: Array, held: Held) -> tuple[Held, Held]:
        return {}, {}


@final
@dataclass(frozen=True)
class Sgd(Stateless):
    """x <- x - eta_L * g.

    Reference: Yang et al., ICML 2022, arXiv:2108.09875, Algorithm 2, worker code. Departs from
    it in: nothing.
    """

    plain: ClassVar[bool] = True

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        return gradient


@final
@dataclass(frozen=True)
class Prox(Stateless):
    """x <- x - eta_L * (g + mu * (x - x_start)).

    Reference: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020,
    arXiv:1812.06127, Algorithm 2. Departs from it in: the proximal objective is followed by SGD
    for as many steps as the worker likes, not solved to an accuracy.
    """

    mu: float = 0.1

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise ConfigError(f"Prox needs mu >= 0, got mu={self.mu}.")

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        return gradient + self.mu * (x - start)


@final
@dataclass(frozen=True)
class Momentum(Stateless):
    """v <- beta * v + g;  x <- x - eta_L * v; v is zero when the worker pulls.

    The update's direction is the mean of the v, that is (x_start - x_end) / (K * eta_L).
    Reference: Polyak, "Some methods of speeding up the convergence of iteration methods", 1964.
    Departs from it in: the gradients are stochastic, the velocity does not outlive a visit.
    """

    beta: float = 0.9
    scratch: ClassVar[tuple[str, ...]] = ("velocity",)

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ConfigError(f"Momentum needs 0 <= beta < 1, got beta={self.beta}.")

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        held["velocity"] = self.beta * held["velocity"] + gradient
        return held["velocity"]


@final
@dataclass(frozen=True)
class Scaffold:
    """x <- x - eta_L * (g - c_i + c), and afterwards, by option II,

        c_i' = c_i - c + (x_start - x_end) / (K * eta_L) = c_i - c + G_i

    or, by option I, c_i' = g at x_start. ``control`` is c of the pulled version, ``own_control`` is
    c_i. The update carries c_i' - c_i; the server's half is
    ``SharedVectors(rule, names=("control",), population=M)``. Option II costs nothing, but a visit
    that diverges returns a control that makes the next one diverge further.
    Reference: Karimireddy et al., "SCAFFOLD", ICML 2020, arXiv:1910.06378, Algorithm 1.
    Departs from it in: nothing where updates are fresh; a late one uses the c that it pulled.
    Option I takes the gradient of the first local step for that of all the worker's data.
    """

    option: Literal[1, 2] = 2

    keeps: ClassVar[tuple[str, ...]] = ("own_control",)
    shares: ClassVar[tuple[str, ...]] = ("control",)
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.option not in (1, 2):
            raise ConfigError(f"SCAFFOLD has the options 1 and 2, got option={self.option!r}.")

    @property
    def scratch(self) -> tuple[str, ...]:
        return ("at_start",) if self.option == 1 else ()

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        if self.option == 1:
            first = (x == start).all(-1)[..., None]
            held["at_start"] = held["at_start"] + first * (gradient - held["at_start"])
        return gradient - held["own_control"] + held["control"]

    def finish(self, mean: Array, held: Held) -> tuple[Held, Held]:
        if self.option == 1:
            change = held["at_start"] - held["own_control"]
        else:
            change = mean - held["control"]
        return {"own_control": held["own_control"] + change}, {"control": change}


@final
@dataclass(frozen=True)
class Adam:
    """Adam: steps of about eta_L in every coordinate, however long the gradients are.

        m <- beta1 m + (1 - beta1) g,    v <- beta2 v + (1 - beta2) g^2
        x <- x - eta_L * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)

    m, v and the number of steps t are zero when the worker pulls; with ``keep_state`` they stay
    with the worker from visit to visit.
    Reference: Kingma, Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015,
    arXiv:1412.6980, Algorithm 1. Departs from it in: the state does not outlive a visit, unless
    that is asked for.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    keep_state: bool = False

    shares: ClassVar[tuple[str, ...]] = ()
    plain: ClassVar[bool] = False
    _STATE: ClassVar[tuple[str, ...]] = ("adam_first", "adam_second", "adam_steps")

    def __post_init__(self) -> None:
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1 and 0 < self.epsilon < float("inf")):
            raise ConfigError(
                f"Adam needs 0 <= beta1 < 1, 0 <= beta2 < 1 and epsilon > 0, got "
                f"beta1={self.beta1}, beta2={self.beta2}, epsilon={self.epsilon}."
            )

    @property
    def keeps(self) -> tuple[str, ...]:
        return self._STATE if self.keep_state else ()

    @property
    def scratch(self) -> tuple[str, ...]:
        return () if self.keep_state else self._STATE

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        m, v, steps = (held[name] for name in self._STATE)
        m = self.beta1 * m + (1 - self.beta1) * gradient
        v = self.beta2 * v + (1 - self.beta2) * (gradient * gradient)
        steps = steps + 1  # the same number everywhere: a vector can be kept as all others are
        held.update(zip(self._STATE, (m, v, steps), strict=True))
        # In float64: 1 - 0.999 would lose four of float32's seven digits.
        t = wide(steps[..., :1])
        first, second = (as_like(1 - beta**t, m) for beta in (self.beta1, self.beta2))
        return (m / first) / (sqrt(v / second) + self.epsilon)

    def finish(self, mean: Array, held: Held) -> tuple[Held, Held]:
        return {name: held[name] for name in self.keeps}, {}


def wide(array: Array) -> Array:
    """In float64."""
    return array.astype("float64") if hasattr(array, "astype") else array.double()


@final
class Buffers:
    """Where a vector holds buffers, such as running statistics, and how they get through a visit.

    The gradient of a step has in their places what they are after it. A local rule sees zeros
    there, whatever it does with parameters, and an update brings what they are at the end.
    """

    def __init__(self, places: Array) -> None:
        self._places = places  # that index the last axis

    def taken_from(self, gradient: Array) -> Array:
        """The buffers after a step; the gradient has zeros there from now on."""
        after = copied(gradient[..., self._places])
        gradient[..., self._places] = 0
        return after

    def stepped(self, x: Array, lr: Array, direction: Array, after: Array) -> Array:
        """x_{k+1}; the direction has zeros from now on where a rule, as Prox, has moved buffers."""
        direction[..., self._places] = 0
        x = x - lr * direction
        x[..., self._places] = after
        return x

    def sent(self, mean: Array, x: Array) -> Array:
        """What an update brings: the mean direction, and the buffers at the end."""
        brought = copied(mean)
        brought[..., self._places] = x[..., self._places]
        return brought


@dataclass(frozen=True, eq=False, slots=True)
class LocalResult:
    """What a worker has at the end of a visit; ``kept`` and ``sent`` are the local rule's."""

    direction: Array  # G_i, the mean of the steps' directions
    local_steps: int  # K
    kept: Held
    sent: Held


def take_local_steps(
    rule: LocalRule,
    start: Array,
    held: Held,
    *,
    lr: float,
    gradient: Callable[[Array, int], Array],
    more: Callable[[int], bool],
    buffers: Buffers | None = None,
) -> LocalResult:
    """Take local steps from ``start``, at least one, for as long as ``more(steps taken)`` is true.

        x_{k+1} = x_k - eta_L * d_k,        G_i = (d_0 + ... + d_{K-1}) / K

    ``gradient(x, k)`` is the stochastic gradient of step k, from which ``rule`` makes the direction
    d_k with the vectors that it holds. ``lr`` is eta_L. ``buffers`` is where the vector holds
    buffers, which the rule does not see.
    """
    x, total, done = start, 0.0 * start, 0
    while done == 0 or more(done):
        found = gradient(x, done)
        after = None if buffers is None else buffers.taken_from(found)
        direction = rule.step(found, x, start, held)
        x = x - lr * direction if buffers is None else buffers.stepped(x, lr, direction, after)
        total = total + direction
        done += 1
    mean = total / done
    kept, sent = rule.finish(mean, held)
    return LocalResult(mean if buffers is None else buffers.sent(mean, x), done, kept, sent)
