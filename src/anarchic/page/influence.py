"""How evenly influence is shared: the Gini index and the Lorenz curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

POINTS = 41  # of a Lorenz curve


def influence(shares: Sequence[float], others: int = 0, rest: float = 0.0) -> dict[str, Any]:
    """Of workers' shares, and of ``others`` that have ``rest`` together, in equal parts.

    The Gini index is sum_i (2 i - n - 1) x_i / (n sum x), with x in rising order: 0 where all have
    the same, (n - 1) / n where one has everything. The Lorenz curve says what share of influence
    the least influential workers have together.

    >>> found = influence([0.0, 0.0, 0.0, 1.0])
    >>> found["gini"], influence([0.25] * 4)["gini"]
    (0.75, 0.0)
    """
    each = np.repeat(rest / others, others) if others else np.zeros(0)
    found = np.sort(np.concatenate([np.asarray(shares, np.float64), each]))
    total = float(found.sum())
    if not len(found) or not total > 0:
        return {"gini": None, "lorenz": [], "workers": len(found)}
    n = len(found)
    gini = float((2 * np.arange(1, n + 1) - n - 1) @ found) / (n * total)
    upto = np.concatenate([[0.0], np.cumsum(found)]) / total
    wanted = np.linspace(0, 1, min(POINTS, n + 1))
    lorenz = np.interp(wanted, np.linspace(0, 1, n + 1), upto)
    curve = [[round(float(x), 4), round(float(y), 5)] for x, y in zip(wanted, lorenz, strict=True)]
    return {"gini": round(gini, 6), "lorenz": curve, "workers": n}
