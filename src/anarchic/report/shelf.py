"""Which data sets are at hand, and how a run would deal one to its workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from anarchic.data import DATASETS, Dataset, Parts, load
from anarchic.data.files import _SUFFIXES, _first, _roots, _searched
from anarchic.data.mirrors import SOURCES
from anarchic.errors import DataError
from anarchic.sim.settings import Settings, _load, _workers, deal

# Of the whole data sets as they are loaded by default; loading them all takes many seconds.
SAMPLES = {
    "digits": (1_437, 360),
    "mnist": (60_000, 10_000),
    "fashion-mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
    "shakespeare": (413_149, 103_356),
    "synthetic": (4_298, 1_087),
}


@dataclass(frozen=True)
class Kept:
    """A data set: where it is, how many samples it has, and what is wrong with its files."""

    name: str
    where: str
    train: int | None
    test: int | None
    problem: str | None = None


def shelf(data_dir: str | os.PathLike[str] | None = None, *, check: bool = False) -> Iterator[Kept]:
    """All data sets, without downloading any; with ``check`` those at hand are loaded."""
    for name in DATASETS:
        place = where(name, data_dir)
        known = SAMPLES.get(name, (None, None))
        if not check or place is None:
            yield Kept(name, place or "not here; fetched on first use", *known)
            continue
        try:
            data = load(name, data_dir)
        except DataError as error:
            yield Kept(name, place, None, None, str(error))
        else:
            yield Kept(name, place, len(data.y_train), len(data.y_test))


def where(name: str, data_dir: str | os.PathLike[str] | None = None) -> str | None:
    """The folder that holds all files of a data set, or None."""
    if name not in SOURCES:
        return "with the package" if name == "digits" else "made from a seed"
    searched = _searched(name, [root / name for root in _roots(data_dir)])
    found = None
    for filename, source in SOURCES[name].items():
        candidates = [filename + suffix for suffix in _SUFFIXES]
        found = _first(searched, [*candidates, source.name])
        if found is None:
            return None
    return str(found.parent) if found is not None else None


def dealt(settings: Settings) -> tuple[Dataset, Parts]:
    """The data of a run, and the training samples of each of its workers."""
    data = _load(settings)
    return data, deal(settings, data, _workers(settings, data))
