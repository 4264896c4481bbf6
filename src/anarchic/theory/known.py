"""The numbers that a caller gives to the theorems."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from anarchic.theory.numbers import Problem, Rates

PROBLEM = tuple(field.name for field in fields(Problem))
RATES = tuple(field.name for field in fields(Rates))


@dataclass(frozen=True, kw_only=True)
class KnownNumbers:
    """Numbers that are known, or tried out; None where a default, an estimate or a count holds.

    Symbols: as in ``Problem`` and ``Rates``; ``rounds`` is T, ``workers`` M, ``local_steps`` K of
    every visit, ``staleness`` tau of Theorems 2 and 3, ``row_age`` tau and ``fresh`` m' of
    Theorem 4.
    """

    smoothness: float | None = None
    sigma_local: float | None = None
    sigma_global: float | None = None
    gap: float | None = None
    server_lr: float | None = None
    local_lr: float | None = None
    rounds: int | None = None
    workers: int | None = None
    m: int | None = None
    local_steps: int | None = None
    staleness: int | None = None
    row_age: int | None = None
    fresh: int | None = None

    def given(self, names: Iterable[str]) -> dict[str, float]:
        """Those of ``names`` that are known."""
        found = {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def participation(self) -> dict[str, float]:
        """The known numbers of participation, which a recorded run has itself."""
        return self.given(f.name for f in fields(self) if f.name not in PROBLEM + RATES)
