"""The compiled loop over float16: Numba has no such type, so its bits are held in uint16."""

# Numba is untyped, and what it compiles is Python only in form.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, call-arg"
# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import numpy as np

from anarchic.errors import ConfigError
from anarchic.kernels.compiled import compiled

try:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core import codegen, config
    from numba.extending import intrinsic
except ImportError as missing:
    raise ConfigError(
        "The compiled loop over float16 needs Numba, which was not found: install anarchic[fast]."
    ) from missing

_INFINITY, _NO_SIGN = np.float32(np.inf), np.int32(0x7FFFFFFF)


def has_instructions() -> bool:
    """Whether the processor converts float16; if not, LLVM calls functions that are not linked."""
    chosen = config.CPU_FEATURES  # by the environment
    features: str = codegen.get_host_cpu_features() if chosen is None else chosen
    return "+f16c" in features.split(",")


@compiled
def exchange(total, codes, scales, direction, bits, rate, known):
    """As ``loops.exchange_bytes``; the largest number of a group is 1 in its codes."""
    width = codes.shape[1]
    for group in range(len(scales)):
        old = scales[group]
        if known:
            for i in range(width):
                total[group, i] -= wide(codes[group, i]) * old
        most = np.int32(0)
        for i in range(width):
            most = max(most, np.int32(bits[group, i] & _NO_SIGN))
        scale = rate * np.int32(most).view(np.float32)
        divisor = scale if scale > 0 else _INFINITY
        scales[group] = scale
        for i in range(width):
            codes[group, i] = narrow(rate * direction[group, i] / divisor)
            total[group, i] += wide(codes[group, i]) * scale


@intrinsic
def wide(typing, code):
    """The float16 with these bits, as float32."""

    def generate(context, builder, signature, values):
        return builder.fpext(builder.bitcast(values[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def narrow(typing, number):
    """The bits of the float16 nearest to a float32."""

    def generate(context, builder, signature, values):
        return builder.bitcast(builder.fptrunc(values[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate
