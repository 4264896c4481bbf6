"""Which samples a torch ``DataLoader`` reads."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

from anarchic.errors import DataError


def loaded_set(loader: Any) -> Any:
    """The data set behind a loader, or the subset that its sampler reads, each sample once."""
    kinds, source = sys.modules["torch"].utils.data, loader.dataset
    if isinstance(source, kinds.IterableDataset) or not hasattr(source, "__len__"):
        return source  # which is refused, whatever the sampler
    if loader.collate_fn not in (kinds.default_collate, kinds.default_convert):
        raise DataError(
            "The DataLoader has its own collate_fn, which makes batches, but samples are read one "
            "by one: do its work in the data set's __getitem__, and give the data set."
        )
    batches = loader.batch_sampler
    simple = batches is None or type(batches) is kinds.BatchSampler
    sampler = loader.sampler if batches is None else batches.sampler if simple else batches
    if type(sampler) in (kinds.SequentialSampler, kinds.RandomSampler):
        if getattr(sampler, "replacement", False):
            raise _drawn_again(sampler)
        rows: Iterable[Any] = range(len(sampler.data_source))
    elif type(sampler) is kinds.SubsetRandomSampler:
        rows = sampler.indices
    elif isinstance(sampler, kinds.WeightedRandomSampler):
        raise _drawn_again(sampler)
    else:  # its order may be drawn anew each time, so that of the data set is taken
        count = len(source)
        listed = iter(sampler if simple else chain.from_iterable(sampler))
        rows = sorted(_numbers(sampler, islice(listed, count + 1)))  # it may go on for ever
    return _subset(source, sampler, rows)


def _subset(source: Any, sampler: Any, rows: Iterable[Any]) -> Any:
    numbers, count = _numbers(sampler, rows), len(source)
    if numbers == list(range(count)):
        return source
    if len(set(numbers)) < len(numbers):
        raise _drawn_again(sampler)
    if not numbers:
        raise DataError(f"The DataLoader's {type(sampler).__name__} lists no samples.")
    if min(numbers) < 0 or max(numbers) >= count:
        raise DataError(
            f"The DataLoader's {type(sampler).__name__} lists the samples {min(numbers)} to "
            f"{max(numbers)}, but they are numbered 0 to {count - 1}: use these numbers."
        )
    return sys.modules["torch"].utils.data.Subset(source, numbers)


def _numbers(sampler: Any, rows: Iterable[Any]) -> list[int]:
    try:
        return [operator.index(row) for row in rows]
    except TypeError as error:
        raise DataError(
            f"The DataLoader's {type(sampler).__name__} does not list numbers of samples "
            f"({error}): give the data set instead, or a Subset of it."
        ) from error


def _drawn_again(sampler: Any) -> DataError:
    return DataError(
        f"The DataLoader's {type(sampler).__name__} draws some samples more often than others, but "
        "workers draw theirs uniformly: give the data set instead, or a Subset of it, and put "
        "weights into the loss."
    )
