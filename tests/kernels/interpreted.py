"""Triton kernels on the CPU, by Triton's own interpreter."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest


def interpreted(module: str) -> ModuleType:
    """The module with its kernels interpreted; skips where Triton is missing.

    Triton asks the environment whenever a kernel is defined, its own on its first import, and
    again when one is called: the choice is for the whole process.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    _mend_interpreter()
    return import_module(module)


@cache
def _mend_interpreter() -> None:
    """What Triton 3.6 lacks on a CPU.

    NumPy 2.4 no longer makes an int of a one-element array, as a range over a tensor needs;
    bfloat16 factors, held as 16-bit words, are multiplied as if they were integers; and a float32
    is cut to bfloat16, not rounded.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    patch, dot = interpreter._patch_lang_tensor, interpreter.InterpreterBuilder.create_dot
    convert = interpreter._convert_float

    def patch_and_count(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def dot_of_floats(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, _widened(a), _widened(b), *rest)

    def convert_to_nearest(number: Any, source: Any, target: Any, mode: Any) -> Any:
        if (source, target) != (tl.float32, tl.bfloat16):
            return convert(number, source, target, mode)
        bits = number.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)

    interpreter._patch_lang_tensor = patch_and_count
    interpreter._convert_float = convert_to_nearest
    interpreter.InterpreterBuilder.create_dot = dot_of_floats


def _widened(factor: Any) -> Any:
    """A bfloat16 is the upper half of a float32."""
    if factor.data.dtype != np.uint16:
        return factor
    return SimpleNamespace(
        data=(factor.data.astype(np.uint32) << 16).view(np.float32), dtype=factor.dtype
    )
