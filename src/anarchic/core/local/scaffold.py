"""SCAFFOLD: control variates against client drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from anarchic.core.local.rule import Array, Held


@final
@dataclass(frozen=True)
class Scaffold:
    """x <- x - eta_L * (g - c_i + c), and afterwards, by option II,

        c_i' = c_i - c + (x_start - x_end) / (K * eta_L) = c_i - c + G_i

    ``control`` is c of the pulled version, ``own_control`` is c_i. The update carries
    c_i' - c_i; the server's half is ``Carry(rule, names=("control",), population=M)``.
    Reference: Karimireddy et al., "SCAFFOLD", ICML 2020, arXiv:1910.06378, Algorithm 1.
    Departs from it in: nothing where updates are fresh; a late one uses the c that it pulled.
    """

    keeps: ClassVar[tuple[str, ...]] = ("own_control",)
    shares: ClassVar[tuple[str, ...]] = ("control",)
    scratch: ClassVar[tuple[str, ...]] = ()

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        return gradient - held["own_control"] + held["control"]

    def finish(self, mean: Array, held: Held) -> tuple[Held, Held]:
        change = mean - held["control"]
        return {"own_control": held["own_control"] + change}, {"control": change}
