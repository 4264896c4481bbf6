"""A table in a CSV file: one sample per line, named columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.data.dataset import Dataset
from anarchic.data.files import read
from anarchic.errors import DataError

Array = NDArray[Any]


def load_csv(
    *,
    path: str,
    target: str,
    features: str | None = None,
    owner: str | None = None,
    test: float = 0.2,
    test_path: str | None = None,
    val: float = 0.0,
    scale: bool = True,
    classes: int | None = None,
    seed: int = 0,
) -> Dataset:
    """A CSV file of yours, plain or compressed; the first line has the names of the columns.

    ``target`` and ``features`` are columns, several with commas between; without ``features`` all
    others are inputs. Texts in the target are classes. Each value of the column ``owner`` is a
    worker. ``test`` and ``val`` are shares, drawn with ``seed``; ``test_path`` is a file of test
    samples instead. ``scale`` gives every input the mean 0 and the deviation 1 of its training
    samples.
    """
    data = Dataset.of(
        read_columns(path),
        test=test if test_path is None else read_columns(test_path),
        val=val,
        features=listed(features),
        target=listed(target),
        owner=owner,
        classes=classes,
        name=Path(path).name,
        seed=seed,
    )
    return _scaled(data) if scale else data


def listed(names: str | None) -> str | Sequence[str] | None:
    """Names of columns with commas between; one alone stays what it is."""
    found = [name.strip() for name in (names or "").split(",") if name.strip()]
    return found if len(found) > 1 else found[0] if found else None


def read_columns(path: str) -> dict[str, Array]:
    """The columns of a CSV file as numbers where all values are, otherwise as texts."""
    try:
        text = read(Path(path).expanduser()).decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8 ({error}).") from error
    if len(rows) < 2:
        raise DataError(f"{path} has {len(rows)} lines: one with names and one sample at least.")
    names = [name.strip() for name in rows[0]]
    if len(set(names)) < len(names):
        raise DataError(f"{path} has two columns of one name: {', '.join(names)}.")
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise DataError(
                f"{path}, line {number}: {len(row)} values, but the first line names {len(names)} "
                "columns."
            )
    return {n: _typed(column) for n, column in zip(names, zip(*rows[1:], strict=True), strict=True)}


def _typed(values: Sequence[str]) -> Array:
    given = [value.strip() for value in values]
    for kind in (np.int64, np.float64):
        try:
            return np.array([value or "nan" for value in given], str).astype(kind)
        except (ValueError, OverflowError):
            continue
    return np.array([value or None for value in given], object)  # None: missing


def _scaled(data: Dataset) -> Dataset:
    mean, spread = data.x_train.mean(0, np.float64), data.x_train.std(0, np.float64)
    spread = np.where(spread > 0, spread, 1)

    def scaled(x: Array) -> Array:
        return np.asarray((x - mean) / spread, np.float32)

    x_val = None if data.x_val is None else scaled(data.x_val)
    return replace(data, x_train=scaled(data.x_train), x_test=scaled(data.x_test), x_val=x_val)
