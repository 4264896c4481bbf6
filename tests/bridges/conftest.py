"""What all tests of other libraries share."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings do not fail these tests: a new release of a library may bring some of its own."""
    for item in items:
        if HERE in item.path.parents and item.path.name != "test_torch.py":
            item.add_marker(pytest.mark.filterwarnings("default"))
