"""Several paired comparisons of one set of runs, corrected for their number, each in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from anarchic.errors import ConfigError
from anarchic.stats.inference import (
    Floats,
    Interval,
    different,
    equivalent,
    holm,
    interval,
    paired,
    seeds_needed,
    told,
)

POWER = 0.9


@final
@dataclass(frozen=True)
class Comparison:
    """``ours`` less ``theirs`` over common seeds; p-values are corrected for all comparisons made.

    ``p`` is of "there is no difference", ``p_margin`` of "they differ by ``margin`` or more" (two
    one-sided tests); ``needed`` is how many new seeds would show that, if there is no difference.
    """

    ours: str
    theirs: str
    interval: Interval
    p: float
    margin: float | None = None
    p_margin: float | None = None
    needed: int | None = None
    alpha: float = 0.05
    compared: int = 1  # comparisons for which p-values are corrected

    def sentence(self, metric: str = "accuracy", *, lower: bool = False) -> str:
        """What can be said; of a metric that is better if ``lower`` as well."""
        found = self.interval
        corrected = ""
        if self.compared > 1:
            corrected = f" corrected for {self.compared} comparisons, which the interval is not"
        said = (
            f"{metric} of {self.ours} less that of {self.theirs}: {told(found)}, "
            f"p = {self.p:.3g}{corrected}). "
        )
        if self.p < self.alpha:
            better = (found.mean < 0) == lower
            said += f"{self.ours} is {'better' if better else 'worse'} than {self.theirs}."
        else:
            said += "No difference was shown, which does not show that there is none."
        return said + self._of_margin()

    def _of_margin(self) -> str:
        if self.margin is None or self.p_margin is None:
            return ""
        shown = self.p_margin < self.alpha
        said = (
            f" That they differ by less than {self.margin:g} is {'' if shown else 'not '}shown "
            f"(p = {self.p_margin:.3g})."
        )
        if not shown and self.needed is not None and self.p >= self.alpha:
            said += (
                f" If they do not differ, and vary as here, {self.needed} new common seeds would "
                f"show it with probability {POWER:g}: fix that number before you look at their "
                "results."
            )
        return said


def compare(
    values: Mapping[str, Mapping[int, float]],
    pairs: Sequence[tuple[str, str]],
    *,
    margin: float | None = None,
    alpha: float = 0.05,
    method: Literal["t", "bca"] = "t",
    digits: int | None = None,
) -> list[Comparison]:
    """Each pair of names compared over the seeds that both have; ``values`` are by name and seed.

    ``digits`` is how many significant ones the values have, as in ``paired``.

    p-values are Holm's for all pairs; those of equivalence are corrected on their own. Intervals
    are not corrected. They are Student's, as the tests are; ``bca`` is for values that are far from
    normal, and for many seeds: of 10 normal values it covers the mean in 90 % of the cases, not 95.
    """
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha is between 0 and 1, such as 0.05, got {alpha}.")
    if missing := [name for pair in pairs for name in pair if name not in values]:
        raise ConfigError(f"There are no values of {missing[0]!r}; there are {', '.join(values)}.")
    found = {(a, b): paired(values[a], values[b], digits=digits) for a, b in pairs}
    keys = {f"{number}": pair for number, pair in enumerate(found)}
    p = holm({key: different(found[pair]) for key, pair in keys.items()})
    close: dict[str, float] = {}
    if margin is not None:
        close = holm({key: equivalent(found[pair], margin) for key, pair in keys.items()})
    return [
        Comparison(
            *pair,
            interval(found[pair], level=1 - alpha, method=method),
            p[key],
            margin,
            close.get(key),
            _needed(found[pair], margin, alpha / len(found)),
            alpha,
            len(found),
        )
        for key, pair in keys.items()
    ]


def _needed(differences: Floats, margin: float | None, alpha: float) -> int | None:
    """Seeds for both of the one-sided tests to succeed: each may fail in half of the cases.

    ``alpha`` is what the least of all corrected p-values is held against.
    """
    deviation = float(np.std(differences, ddof=1))
    if margin is None:
        return None
    try:
        return seeds_needed(deviation, margin, power=(1 + POWER) / 2, alpha=alpha)
    except ConfigError:  # more than anybody would run
        return None
