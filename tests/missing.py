"""Packages that are installed, as if they were not."""

from __future__ import annotations


def without(*packages: str) -> str:
    """The first lines of a program that finds none of these packages."""
    return f"""
from importlib.machinery import PathFinder
_find = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None:
    None if name.split(".")[0] in {packages} else _find(name, path, target)
)
"""
