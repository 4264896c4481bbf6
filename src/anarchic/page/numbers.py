"""Pictures as JSON, which has no infinity: one such number must not cost the whole picture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any


def encoded(value: Any) -> str:
    """JSON; a number that is not finite becomes null."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:  # seldom: nothing is copied if all is well
        return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inside) for name, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inside) for inside in value]
    return value
