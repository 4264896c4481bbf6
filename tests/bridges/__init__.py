"""Workers in the loops of other libraries; ``make test-bridges`` installs the libraries."""

from __future__ import annotations

import warnings
from typing import Any

import pytest


def library(name: str) -> Any:
    """Import a library, or skip the tests of the calling file and say how to install it."""
    told = f"{name} is not installed: make test-bridges installs it and runs these tests"
    with warnings.catch_warnings():  # its own warnings are not ours to fix
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=told, exc_type=ImportError)
