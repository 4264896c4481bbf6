"""Writes docs/names.md, the list of public names: ``python -m tests.public_names``."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

import anarchic

PAGE = Path(__file__).parents[1] / "docs" / "names.md"
HEAD = """# Public names

Import these names from the package in the heading. Any other name may change without notice.
`python -m tests.public_names` writes this page from the packages.
"""


def packages() -> list[str]:
    """All packages with public names of their own, the root first."""
    walked = pkgutil.walk_packages(anarchic.__path__, "anarchic.")
    found = [module.name for module in walked if module.ispkg]
    return ["anarchic", *(name for name in found if set(names(name)) - set(names("anarchic")))]


def names(package: str) -> list[str]:
    """What a package lists in ``__all__``; the command line is documented elsewhere."""
    if package == "anarchic.cli":
        return []
    return sorted(getattr(importlib.import_module(package), "__all__", []))


def page() -> str:
    return "\n".join([HEAD, *(section(name) for name in packages())])


def section(package: str) -> str:
    module = importlib.import_module(package)
    rows = [f"| `{name}` | {said(getattr(module, name))} |" for name in names(package)]
    return "\n".join([f"## `{package}`\n", "| name | what it is |", "| --- | --- |", *rows, ""])


def said(value: object) -> str:
    """The first sentence of its docstring; constants and type aliases have none of their own."""
    if not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)):
        return ""
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    first = text.split(". ")[0].rstrip(".")
    return first.replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
