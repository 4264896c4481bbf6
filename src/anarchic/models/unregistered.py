"""Parameters of a module that torch does not know of, because they are in plain attributes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from torch import nn

APART = ("_parameters", "_buffers", "_modules")  # of nn.Module, which torch looks after
DEPTH = 4  # containers and objects within others that are looked into


def unregistered(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters in attributes, as in a list of layers, of which torch does not know."""
    known = {id(parameter) for parameter in module.parameters()}
    return {
        f"{name}.{key}" if name else key: each
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if key not in APART
        for leaf in leaves(value)
        for each in (leaf.parameters() if isinstance(leaf, nn.Module) else (leaf,))
        if isinstance(each, nn.Parameter) and each.requires_grad and id(each) not in known
    }


def leaves(value: Any, depth: int = DEPTH) -> Iterator[Any]:
    """What is in a value, through lists and dictionaries."""
    if isinstance(value, list | tuple | deque | dict) and depth:
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each, depth - 1)
    else:
        yield value
