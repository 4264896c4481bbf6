"""Looking at a first model: what of it would not survive averaging, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from shlex import quote
from typing import Literal, get_args

from anarchic.core.reading import printable
from anarchic.core.types import Layout, Vector
from anarchic.errors import ConfigError

Policy = Literal["average", "local", "refuse"]
"""What becomes of buffers: averaged by the server, kept by each worker, or not taken at all."""

# As PyTorch and Keras name them: what a layer measures while it trains, and no gradient changes.
RUNNING = re.compile(r".*(?:running_(?:mean|var|std)|num_batches_tracked|moving_(?:mean|variance))")
VARIANCE = re.compile(r".*(?:running_var|moving_variance)")
LARGE = 1 << 28  # bytes of a model from which a worker's connection matters
LARGEST = 1 << 30  # that a worker reads of an answer


def check_policy(policy: str | None) -> None:
    """Refuse a policy that there is not; None is none."""
    if policy is not None and policy not in get_args(Policy):
        raise ConfigError(
            f"There is no policy for buffers {policy!r}; there are {', '.join(get_args(Policy))}."
        )


def running_statistics(names: Iterable[str]) -> list[str]:
    """Those of the names that are usually given to running statistics."""
    return [name for name in names if RUNNING.fullmatch(name)]


def negative_variance(layout: Layout, vector: Vector) -> tuple[str, float] | None:
    """The first running variance among a model's buffers that is below 0, and its value."""
    for name in layout.buffers:
        if VARIANCE.fullmatch(name):
            least = float(vector[layout.slices[name]].min(initial=0.0))
            if least < 0:
                return name, least
    return None


def some(names: Sequence[str], most: int = 3) -> str:
    """The first of the names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(printable(name, most=80) for name in names[:most]) + more


def needs_policy(what: str, found: Sequence[str], out: str = "averaged.safetensors") -> str:
    """Why running statistics need a policy, and the command that writes a model with one."""
    command = f"anarchic init --from {quote(what)} --buffers average --out {quote(out)}"
    return (
        f"{what} has running statistics ({some(found)}), which no gradient changes: a server that "
        "steps along them makes variances negative. Either the server averages them, with "
        f"`{command}`, or each worker keeps its own, with --buffers local in its place."
    )


def concerns(layout: Layout, file: str) -> list[str]:
    """What to tell whoever begins a run with the model in ``file``: a sentence each."""
    found = []
    plain = [name for name in layout.names if name not in layout.buffers]
    if stray := running_statistics(plain):
        found.append(needs_policy(file, stray))
    return found + dtype_concerns(layout) + size_concerns(layout)


def dtype_concerns(layout: Layout) -> list[str]:
    """Half precision, and doubles among others."""
    found = []
    half = [n for n, d in zip(layout.names, layout.dtypes, strict=True) if d in ("F16", "BF16")]
    if half:
        found.append(
            f"{len(half)} of {len(layout.names)} tensors are in half precision ({some(half)}): the "
            "server keeps and sends them as float32, since small steps would be rounded away. "
            "Workers send half the bytes with --dtype BF16."
        )
    double = [n for n, d in zip(layout.names, layout.dtypes, strict=True) if d == "F64"]
    if 0 < len(double) < len(layout.names):
        found.append(
            f"{len(double)} of {len(layout.names)} tensors are float64 ({some(double)}), which "
            "makes the whole model float64, of twice the bytes: convert them to float32."
        )
    return found


def size_concerns(layout: Layout) -> list[str]:
    """A model that workers cannot pull, or for which they need a good connection."""
    size = layout.dim * (8 if "F64" in layout.dtypes else 4)
    told = f"The model has {size / 2**20:,.0f} MiB, which every pull and every update transfers"
    remedy = "train a part of it only (--train REGEX), such as adapters"
    if size >= LARGEST:
        return [f"{told}; workers read at most {LARGEST >> 20} MiB and would fail: {remedy}."]
    return [f"{told}: if that is too much, {remedy}."] if size >= LARGE else []
