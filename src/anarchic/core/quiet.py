"""Whether progress is to be shown: a script that reads our output wants none."""

from __future__ import annotations

from contextvars import ContextVar

QUIET: ContextVar[bool] = ContextVar("QUIET", default=False)
