"""Samples from columns: of a pandas or Polars frame, a Hugging Face data set, or a mapping."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.core.validation import did_you_mean
from anarchic.errors import DataError

Array = NDArray[Any]

_AT_ONCE = 1_000  # rows of a Hugging Face data set
_USUAL_TARGETS = ("label", "labels", "target", "fine_label")


@dataclass(frozen=True)
class Columns:
    """Which columns are inputs (None: all others), targets, and owners."""

    features: str | Sequence[str] | None = None
    target: str | Sequence[str] | None = None
    owner: str | None = None
    part: str | None = None  # such as "test", whose columns are those of the training samples

    def chosen(self, known: Sequence[str]) -> tuple[list[str], list[str]]:
        """The columns of inputs and of targets, of those that there are."""
        usual = [name for name in _USUAL_TARGETS if name in known]
        target = usual if self.target is None and len(usual) == 1 else _names(self.target)
        if not target:
            raise DataError(
                f"Say which column is the target with target=...; there are {', '.join(known)}."
            )
        others = [name for name in known if name not in (*target, self.owner)]
        features = others if self.features is None else _names(self.features)
        self._check([*features, *target, *_names(self.owner)], known)
        if not features:
            raise DataError("No column is left for the inputs: name them with features=[...].")
        return features, target

    def inputs(self, known: Sequence[str]) -> list[str]:
        """The columns of inputs of a table without targets."""
        features = list(known) if self.features is None else _names(self.features)
        self._check(features, known)
        return features

    def _check(self, wanted: Sequence[str], known: Sequence[str]) -> None:
        for name in wanted:
            if name not in known and self.part is not None:
                raise DataError(
                    f"The {self.part} samples have no column {name!r}, which the training samples "
                    f"have; theirs are {', '.join(known)}. Add it, or choose columns that both "
                    "have with features=[...]."
                )
            if name not in known:
                raise DataError(
                    f"There is no column {name!r}.{did_you_mean(name, known)} The columns are "
                    f"{', '.join(known)}."
                )


@dataclass(frozen=True)
class Samples:
    """Inputs, their targets, whose they are, and what the source says of classes."""

    x: Array
    y: Array
    owner: Array | None = None
    classes: int | None = None
    columns: Columns | None = None  # those taken, if the source is a table


def is_frame(source: Any) -> bool:
    """Whether ``source`` has named columns; a library is only asked if somebody loaded it."""
    libraries = ("pandas", "DataFrame"), ("polars", "DataFrame"), ("polars", "LazyFrame")
    found = any(is_a(source, *each) for each in (*libraries, ("datasets", "Dataset")))
    return found or isinstance(source, Mapping)


def from_frame(source: Any, columns: Columns) -> Samples:
    """The samples of anything with named columns."""
    if is_a(source, "polars", "LazyFrame"):
        raise DataError("A Polars LazyFrame has not been computed: call .collect() first.")
    if is_a(source, "datasets", "Dataset"):
        return _from_hugging_face(source, columns)
    names = _column_names(source)
    lengths = {len(source[name]) for name in names.values()}
    if len(lengths) > 1:
        raise DataError(f"The columns have {sorted(lengths)} values: give all the same number.")
    features, target = columns.chosen(list(names))

    def column(name: str) -> Array:
        return _values(name, source[names[name]])

    return from_columns(column, features, target, columns.owner)


def from_columns(
    column: Callable[[str], Array], features: list[str], target: list[str], owner: str | None
) -> Samples:
    """The samples of columns that ``column`` gives by name."""
    y = _present(target[0], column(target[0]))
    if len(target) > 1:
        y = np.stack([_numbers(name, column(name)) for name in target], axis=1)
    owners = None if owner is None else _present(owner, column(owner))
    taken = Columns(features, target, owner)
    return Samples(_inputs(column, features), y, owners, columns=taken)


def inputs_by_name(source: Any, columns: Columns) -> tuple[Any, Columns | None]:
    """The columns of inputs of a frame whose targets are given apart; anything else as it is."""
    if not is_a(source, "pandas", "DataFrame") and not is_a(source, "polars", "DataFrame"):
        return source, None
    names = _column_names(source)
    features = columns.inputs(list(names))
    return source[[names[name] for name in features]], replace(columns, features=features)


def _column_names(source: Any) -> dict[str, Any]:
    """The names of columns as texts, each with what the source calls it."""
    given = list(getattr(source, "columns", source))
    names = {str(name): name for name in given}
    if len(names) < len(given):
        raise DataError(f"Two columns have one name: {', '.join(map(str, given))}. Rename one.")
    return names


def _from_hugging_face(source: Any, columns: Columns) -> Samples:
    features, target = columns.chosen(source.column_names)
    wanted = [*features, *target, *_names(columns.owner)]
    rows = source.select_columns(list(dict.fromkeys(wanted))).with_format("numpy")
    pieces = [rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE)]
    images = [n for n in wanted if type(source.features[n]).__name__ == "Image"]

    def column(name: str) -> Array:
        values = [each for piece in pieces for each in piece[name]]
        found = [pixels(value) for value in values] if name in images else values
        return stacked(f"column {name!r}", found)

    found = from_columns(column, features, target, columns.owner)
    known = getattr(source.features[target[0]], "num_classes", None) if len(target) == 1 else None
    return replace(found, classes=known)


def pixels(image: Any) -> Array:
    """An image of bytes, (height, width) or (height, width, channels), with channels first, 0 to 1.

    That is what is usual for PyTorch.
    """
    array = np.asarray(image)
    array = array[np.newaxis] if array.ndim == 2 else np.moveaxis(array, -1, 0)
    scale = 255 if array.dtype == np.uint8 else 1
    return np.ascontiguousarray(array, np.float32) / np.float32(scale)


def stacked(what: str, values: Sequence[Any]) -> Array:
    """The values as one array; those of different shapes are refused."""
    try:
        found = np.asarray(values)
        if found.dtype.kind == "O" and not isinstance(found.reshape(-1)[0], str):
            found = np.stack([np.asarray(value) for value in values])
        if found.dtype.kind == "U" and found.ndim == 1 and "nan" in found:
            # NumPy writes a missing label among texts as the text "nan".
            known = [None if value != value else str(value) for value in values]
            found = np.array(known, object) if None in known else found
    except ValueError as error:
        shapes = {np.shape(value): None for value in values}
        raise DataError(
            f"The values of {what} have different shapes, such as "
            f"{' and '.join(map(str, list(shapes)[:2]))}: pad or cut them to one."
        ) from error
    return found


def _inputs(column: Callable[[str], Array], features: list[str]) -> Array:
    """One column of arrays as it is, or columns of numbers side by side."""
    first = column(features[0])
    if len(features) == 1 and first.ndim > 1:
        return first
    return np.stack([_numbers(name, column(name)) for name in features], axis=1)


def _numbers(name: str, values: Array) -> Array:
    if values.dtype.kind not in "fiub":
        raise DataError(
            f"Column {name!r} holds {_kind(values)}, not numbers: encode it (pandas.get_dummies, "
            "Polars' to_dummies, a tokenizer), or leave it out with features=[...]."
        )
    if values.ndim > 1:
        raise DataError(
            f"Column {name!r} holds arrays of shape {values.shape[1:]}: it must be the only column "
            "of inputs, features=[...]."
        )
    return _present(name, values).astype(np.float32)


def _present(name: str, values: Array) -> Array:
    """The values, if none is missing."""
    if values.dtype.kind == "f":
        _check_missing(name, int(np.isnan(values).sum()), len(values))
    elif values.dtype.kind == "O":
        _check_missing(name, sum(value is None for value in values), len(values))
    return values


def _check_missing(name: str, missing: int, rows: int) -> None:
    if missing:
        raise DataError(
            f"Column {name!r} has {missing:,} missing values of {rows:,}: fill them in, or drop "
            "these rows."
        )


def _values(name: str, column: Any) -> Array:
    """A column of a frame in NumPy."""
    if is_a(column, "pandas", "Series"):
        _check_missing(name, int(column.isna().sum()), len(column))
    elif is_a(column, "polars", "Series"):
        _check_missing(name, column.null_count(), len(column))
    found = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    if found.dtype.kind == "O" and len(found) and not isinstance(found[0], str):
        return stacked(f"column {name!r}", list(found))
    return found


def _kind(values: Array) -> str:
    kinds = {"U": "text", "S": "text", "O": "text or objects", "M": "dates", "m": "durations"}
    return kinds.get(values.dtype.kind, str(values.dtype))


def _names(names: str | Sequence[str] | None) -> list[str]:
    return [] if names is None else [names] if isinstance(names, str) else list(names)


def is_a(source: Any, library: str, *names: str) -> bool:
    """Whether it is of one of these classes of a library; one that nobody loaded has none."""
    module = sys.modules.get(library)
    kinds = tuple(getattr(module, name) for name in names if hasattr(module, name))
    return isinstance(source, kinds)
