"""SCAFFOLD: control variates against client drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

from anarchic.core.local.rule import Array, Held
from anarchic.errors import ConfigError


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
