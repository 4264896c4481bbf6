"""The names that an experiment's run.py defines."""

from __future__ import annotations

import runpy
from types import SimpleNamespace

from anarchic.study import find


def names_of(experiment: str) -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(find.folder() / experiment / "run.py")))
