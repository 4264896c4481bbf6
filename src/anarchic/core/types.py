"""What passes between workers, server and simulator: vectors, updates, snapshots, layouts.

Updates, blocks of them and snapshots are equal only to themselves: the comparison of two arrays
has no single truth value. Compare their fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from anarchic.errors import ConfigError, MalformedUpdate

Vector = NDArray[np.floating[Any]]  # (dim,)
Matrix = NDArray[np.floating[Any]]  # (updates, dim)
Integers = NDArray[np.integer[Any]]
# Columns of a timetable
Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]  # indices into other arrays


@final
class _Nothing(Mapping[str, Vector]):
    """A mapping without entries that nobody can fill, and that copies and pickles as itself."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Vector:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"

    def __reduce__(self) -> str:
        return "EMPTY"


EMPTY: Mapping[str, Vector] = _Nothing()


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """What a worker hands back after one visit.

    Symbols: ``base_version`` is mu, ``local_steps`` is K, ``local_lr`` is eta_L and
    ``direction`` is G_i, the mean direction of the local steps. ``extras`` are vectors that a
    local rule returns beside it (SCAFFOLD's control). ``(worker, id)`` sent twice counts once.
    """

    worker: str
    base_version: int
    local_steps: int
    local_lr: float
    direction: Vector
    samples: int = 0
    extras: Mapping[str, Vector] = field(default_factory=lambda: EMPTY)
    id: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """A block of updates in the order in which they are folded, as arrays."""

    workers: Sequence[str]
    base_versions: Integers  # (n,)
    local_steps: Integers  # (n,)
    local_lrs: NDArray[np.float64]  # (n,)
    directions: Matrix  # (n, dim)
    samples: Integers  # (n,)
    extras: Mapping[str, Matrix] = field(default_factory=lambda: EMPTY)

    def __post_init__(self) -> None:
        columns: list[Sized] = [self.workers, self.base_versions, self.local_steps]
        columns += [self.local_lrs, self.samples, *self.extras.values()]
        found = {len(column) for column in columns}
        if found != {len(self)}:
            raise MalformedUpdate(
                f"A block of {len(self)} directions has columns of {sorted(found)} entries."
            )

    def __len__(self) -> int:
        return len(self.directions)

    def __getitem__(self, rows: slice) -> Updates:
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "extras"}
        extras = {name: block[rows] for name, block in self.extras.items()}
        return Updates(**{name: column[rows] for name, column in columns.items()}, extras=extras)

    def row(self, index: int) -> Update:
        """The ``index``-th update on its own."""
        return Update(
            worker=self.workers[index],
            base_version=int(self.base_versions[index]),
            local_steps=int(self.local_steps[index]),
            local_lr=float(self.local_lrs[index]),
            direction=self.directions[index],
            samples=int(self.samples[index]),
            extras={name: block[index] for name, block in self.extras.items()},
        )

    @staticmethod
    def of(updates: Sequence[Update]) -> Updates:
        """Stack single updates; all must carry the same extras."""
        names = {frozenset(update.extras) for update in updates}
        if len(names) != 1:
            raise MalformedUpdate(
                f"Updates of one block must carry the same extras, found "
                f"{sorted(map(sorted, names))}."
            )
        return Updates(
            [u.worker for u in updates],
            np.array([u.base_version for u in updates]),
            np.array([u.local_steps for u in updates]),
            np.array([u.local_lr for u in updates], dtype=np.float64),
            np.stack([u.direction for u in updates]),
            np.array([u.samples for u in updates]),
            {name: np.stack([u.extras[name] for u in updates]) for name in updates[0].extras},
        )


@dataclass(frozen=True)
class Layout:
    """Names, shapes and dtypes of the tensors of a model inside its flat vector.

    The order is the one in which safetensors writes a file: by dtype, widest first, then by name.
    The data part of a file of float32 tensors therefore *is* the vector, byte for byte.
    ``buffers`` names those tensors that no gradient changes, such as the running statistics of
    a BatchNorm: ``AverageBuffers`` averages them.

    >>> layout = Layout.of({"weight": ((2, 3), "F32"), "bias": ((2,), "F32")})
    >>> layout.names, layout.dim, layout.slices["weight"]
    (('bias', 'weight'), 8, slice(2, 8, None))
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]  # safetensors' names: "F64", "F32", "F16", "BF16"
    buffers: tuple[str, ...] = ()

    _RANKS = MappingProxyType({"F64": 0, "F32": 1, "BF16": 2, "F16": 3})  # as safetensors sorts

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.buffers) - set(self.names)):
            raise ConfigError(f"The layout has no tensors {unknown}, which are named as buffers.")

    def __repr__(self) -> str:
        # Without buffers as it was when runs were first recorded: their fingerprints hold it.
        parts = f"names={self.names!r}, shapes={self.shapes!r}, dtypes={self.dtypes!r}"
        return f"Layout({parts}{f', buffers={self.buffers!r}' if self.buffers else ''})"

    @staticmethod
    def of(tensors: Mapping[str, tuple[Sequence[int], str]], buffers: Iterable[str] = ()) -> Layout:
        """From ``{name: (shape, dtype)}`` in any order, and the names of those that are buffers."""
        for name, (_, dtype) in tensors.items():
            if dtype not in Layout._RANKS:
                raise ConfigError(
                    f"Tensor {name!r} has dtype {dtype}; only {', '.join(Layout._RANKS)} can be "
                    "trained. Keep it outside the model's parameters."
                )
        ordered = sorted(tensors, key=lambda name: (Layout._RANKS[tensors[name][1]], name))
        return Layout(
            tuple(ordered),
            tuple(tuple(int(n) for n in tensors[name][0]) for name in ordered),
            tuple(tensors[name][1] for name in ordered),
            tuple(sorted(buffers)),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(prod(shape) for shape in self.shapes)

    @property
    def dim(self) -> int:
        """Length of the vector, d."""
        return sum(self.sizes)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where each tensor lies in the vector."""
        ends = np.cumsum([0, *self.sizes]).tolist()
        return {name: slice(ends[i], ends[i + 1]) for i, name in enumerate(self.names)}

    @cached_property
    def buffer_places(self) -> Rows:
        """The positions of the buffers in the vector, in ascending order."""
        whole = np.arange(self.dim)
        parts = [whole[self.slices[name]] for name in self.names if name in self.buffers]
        return np.concatenate([whole[:0], *parts])

    def split(self, vector: Vector) -> dict[str, NDArray[np.floating[Any]]]:
        """The vector as named tensors (views). Leading axes, as of a matrix, are kept."""
        if vector.shape[-1] != self.dim:
            raise ConfigError(
                f"The layout holds {self.dim} numbers, the vector {vector.shape[-1]}."
            )
        lead = vector.shape[:-1]
        return {
            name: vector[..., where].reshape((*lead, *shape))
            for (name, where), shape in zip(self.slices.items(), self.shapes, strict=True)
        }

    def join(self, tensors: Mapping[str, NDArray[Any]]) -> Vector:
        """Named tensors, in any order, as one float32 vector (float64 if any of them is)."""
        if set(tensors) != set(self.names):
            missing, unknown = set(self.names) - set(tensors), set(tensors) - set(self.names)
            raise ConfigError(
                f"The tensors do not fit the model: missing {sorted(missing)}, "
                f"unknown {sorted(unknown)}."
            )
        for name, shape in zip(self.names, self.shapes, strict=True):
            if tensors[name].shape != shape:
                raise ConfigError(
                    f"Tensor {name!r} has shape {tensors[name].shape}, the model wants {shape}."
                )
        wide = any(tensors[name].dtype == np.float64 for name in self.names)
        dtype = np.float64 if wide else np.float32
        return np.concatenate(
            [np.asarray(tensors[name], dtype=dtype).reshape(-1) for name in self.names]
            or [np.zeros(0, dtype)]
        )


@dataclass(frozen=True, slots=True)
class Terms:
    """What a server says beside a model about what becomes of an update.

    ``buffers`` is the policy for buffers, "average" or "local", and ``buffer_names`` says which
    they are. None, or nothing: there are none, or the server did not say.
    """

    rule: str | None = None
    server_lr: float | None = None
    buffers: str | None = None
    buffer_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A published model: what a worker pulls. Never written to after publication.

    One that was decoded knows the ``layout`` of its parameters, and so its ``tensors``.
    """

    version: int
    params: Vector
    extras: Mapping[str, Vector] = field(default_factory=lambda: EMPTY)
    layout: Layout | None = None
    terms: Terms = field(default_factory=Terms)

    @property
    def tensors(self) -> dict[str, NDArray[np.floating[Any]]]:
        """The model by the names of its tensors (views), buffers that are averaged among them."""
        if self.layout is None:
            raise ConfigError("This snapshot has no layout: split its params with the model's own.")
        return self.layout.split(self.params)
