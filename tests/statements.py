"""Every statement of a file, without the expressions: most of the nodes of a syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator

BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements below a node, at every depth, and their ``except`` and ``case`` parts."""
    for name in BODIES:
        for node in getattr(tree, name, ()):
            yield node
            yield from statements(node)
