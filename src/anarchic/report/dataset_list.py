"""Which data sets there are, and where their files are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from anarchic.core import registry
from anarchic.data import load, locate
from anarchic.data.mirrors import SOURCES
from anarchic.errors import DataError


@dataclass(frozen=True)
class DatasetStatus:
    """A data set: where it is and, once loaded, its number of samples or what is wrong with it."""

    name: str
    where: str
    train: int | None = None
    test: int | None = None
    problem: str | None = None


def list_datasets(
    data_dir: str | os.PathLike[str] | None = None, *, check: bool = False
) -> Iterator[DatasetStatus]:
    """All data sets, without downloading any; with ``check`` those that are there are loaded."""
    for name in registry.names("datasets"):
        place = _where(name, data_dir)
        if place is None:
            yield DatasetStatus(name, "not here; fetched on first use")
        elif check:
            yield _loaded(name, place, data_dir)
        else:
            yield DatasetStatus(name, place)


def _loaded(name: str, place: str, data_dir: str | os.PathLike[str] | None) -> DatasetStatus:
    try:
        data = load(name, data_dir)
    except DataError as error:
        return DatasetStatus(name, place, problem=str(error))
    return DatasetStatus(name, place, len(data.y_train), len(data.y_test))


def _where(name: str, data_dir: str | os.PathLike[str] | None) -> str | None:
    if name not in SOURCES:
        return "with the package" if name == "digits" else "made from a seed"
    place = locate(name, data_dir)
    return None if place is None else str(place)
