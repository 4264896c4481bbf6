"""Where the tensors of a model lie in its flat vector."""

from __future__ import annotations

from math import prod

from anarchic.kernels import Shapes


def slices_of(shapes: Shapes) -> dict[str, slice]:
    """One after another, in the order of ``shapes``.

    >>> slices_of({"bias": (2,), "weight": (2, 3)})
    {'bias': slice(0, 2, None), 'weight': slice(2, 8, None)}
    """
    found, start = {}, 0
    for name, shape in shapes.items():
        found[name] = slice(start, start + prod(shape))
        start += prod(shape)
    return found


def length_of(shapes: Shapes) -> int:
    return sum(map(prod, shapes.values()))
