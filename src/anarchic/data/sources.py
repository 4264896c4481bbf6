"""``Dataset.of``: samples of any common kind, split into parts, as a ``Dataset``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from anarchic.data.dataset import Dataset, Integers
from anarchic.data.frames import Array, Columns, Samples, from_frame, inputs_by_name, is_a, is_frame
from anarchic.data.torch_sets import array_of, from_pairs, from_torch, is_torch_set, refuse_several
from anarchic.errors import ConfigError, DataError

LOGGER = logging.getLogger("anarchic.data")
TEST_SHARE = 0.2  # where neither a test part nor a share is given


def dataset_of(
    given: tuple[Any, Any, Any],
    split: tuple[Any, Any, int],
    columns: Columns,
    about: Mapping[str, Any],
) -> Dataset:
    """``Dataset.of`` with its arguments in groups: (source, y, owner), (test, val, seed)."""
    source, y, owner = given
    test, val, seed = split
    if isinstance(source, Mapping) and "train" in source:  # such as a DatasetDict
        test = source.get("test") if test is None else test
        val = source.get("validation", source.get("val")) if val is None else val
        source = source["train"]
    elif hasattr(source, "load_split"):  # a FederatedDataset of flwr-datasets
        test = source.load_split("test") if test is None else test
        source = _Partitions.of_federated(source)
    train = samples_of(source, columns, y)
    if owner is not None:
        train = replace(train, owner=array_of(owner))
    _check_owners(train)
    parts = _split(train, TEST_SHARE if test is None else test, val, seed, columns)
    return _finished(parts, about)


def _check_owners(train: Samples) -> None:
    owner = train.owner
    if owner is None:
        return
    if owner.shape != (len(train.y),):
        raise DataError(
            f"There are owners of shape {owner.shape} for {len(train.y)} samples: give one each."
        )
    if owner.dtype.kind == "O" and not all(isinstance(each, str) for each in owner):
        raise DataError("Some owners are missing, or not all are texts: name every owner.")


def samples_of(source: Any, columns: Columns, y: Any = None) -> Samples:
    """The samples of anything that ``Dataset.of`` takes."""
    if y is not None:
        _check_index(source, y)
        targets = array_of(y)
        if isinstance(source, Mapping | tuple) and targets.shape[:1] != (len(source),):
            refuse_several("The input", source, "forward=, or in a module around yours")
        x, taken = inputs_by_name(source, columns)
        return _checked_lengths(Samples(array_of(x), targets, columns=taken))
    if is_a(source, "datasets", "IterableDataset", "IterableDatasetDict"):
        raise DataError(
            "A Hugging Face data set that streams has no sample numbers, by which workers draw: "
            "load it without streaming=True, or give Dataset.from_list(list(stream.take(n)))."
        )
    if hasattr(source, "load_partition"):
        return _from_partitions(_Partitions.of(source), columns)
    if is_torch_set(source):
        return from_torch(source)
    if is_frame(source):
        return from_frame(source, columns)
    if isinstance(source, tuple) and len(source) == 2:  # (x, y)
        return samples_of(source[0], columns, source[1])
    if hasattr(source, "tocsr"):
        array_of(source)  # which says what to do
    by_number = hasattr(source, "__getitem__") and not isinstance(source, str | bytes)
    if by_number and not _is_array(source):
        return from_pairs(source)
    if _is_array(source):
        raise DataError("Inputs were given without targets: Dataset.of(x, y).")
    raise DataError(
        f"Dataset.of cannot read a {type(source).__name__}: give arrays or tensors (x, y), a torch "
        "Dataset or DataLoader, a pandas or Polars frame, a Hugging Face data set, or a list of "
        "(input, target); load('csv', path=..., target=...) reads a file."
    )


def _check_index(x: Any, y: Any) -> None:
    """Refuse a frame and targets of pandas whose rows have other names: which belong together?"""
    pandas = ("pandas", "DataFrame", "Series")
    if not (is_a(x, *pandas) and is_a(y, *pandas)) or len(x) != len(y) or x.index.equals(y.index):
        return
    differ = int((np.asarray(x.index, object) != np.asarray(y.index, object)).argmax())
    raise DataError(
        f"Inputs and targets have different indices, first in row {differ} ({x.index[differ]} and "
        f"{y.index[differ]}): give y.loc[x.index] to pair them by index, or y.to_numpy() to pair "
        "them by position."
    )


@dataclass(frozen=True)
class _Partitions:
    """The parts that a partitioner of flwr-datasets makes, by its public methods alone."""

    count: int
    load: Any

    def load_partition(self, number: int) -> Any:
        return self.load(number)

    @staticmethod
    def of(source: Any) -> _Partitions:
        if isinstance(source, _Partitions):
            return source
        if not getattr(source, "is_dataset_assigned", lambda: True)():
            raise DataError(
                f"{type(source).__name__} has no rows yet: set partitioner.dataset to a Hugging "
                "Face data set, or use by_partitioner(data, partitioner)."
            )
        return _Partitions(source.num_partitions, source.load_partition)

    @staticmethod
    def of_federated(source: Any) -> _Partitions:
        source.load_partition(0, "train")  # it assigns the rows to its partitioner
        count = source.partitioners["train"].num_partitions
        return _Partitions(count, lambda number: source.load_partition(number, "train"))


def _from_partitions(source: _Partitions, columns: Columns) -> Samples:
    """The rows of one partition after another; the number of the partition is their owner."""
    found = [samples_of(source.load_partition(n), columns) for n in range(source.count)]
    sizes = [len(each.y) for each in found]
    filled = [each for each in found if len(each.y)]
    x, y = (np.concatenate([getattr(each, name) for each in filled]) for name in ("x", "y"))
    of_all = found[0].classes, found[0].columns
    return Samples(x, y, np.repeat(np.arange(source.count), sizes), *of_all)


def _split(train: Samples, test: Any, val: Any, seed: int, columns: Columns) -> dict[str, Samples]:
    """Training, test and perhaps validation samples, by shares or as they were given."""
    if seed < 0:
        raise ConfigError(f"A seed must be at least 0, got {seed}.")
    parts, shares = {}, {}
    for name, wanted in (("test", test), ("val", val)):
        if isinstance(wanted, Real):
            if wanted:
                shares[name] = float(wanted)
        elif wanted is not None:
            same = columns if train.columns is None else replace(train.columns, part=name)
            parts[name] = samples_of(wanted, same)
    if not all(0 < share < 1 for share in shares.values()) or sum(shares.values()) >= 1:
        raise ConfigError(
            f"test and val are shares between 0 and 1, together below 1; got {shares}."
        )
    if "test" not in parts and "test" not in shares:
        raise ConfigError("A data set needs test samples: give test=0.2, or test=(x, y).")
    order = np.random.default_rng(seed).permutation(len(train.y)) if shares else None
    for name, share in shares.items():
        assert order is not None
        count = max(1, round(share * len(train.y)))
        parts[name], order = _rows(train, order[:count]), order[count:]
    if order is not None:
        if not len(order):
            raise DataError(f"{len(train.y)} samples are too few to be split: give more.")
        train = _rows(train, order)
    return {"train": train, **parts}


def _rows(samples: Samples, rows: Integers) -> Samples:
    if isinstance(samples.x, np.memmap):
        raise DataError(
            "The inputs are memory-mapped, and drawing test samples would copy them: give "
            "test=(x, y), such as the last rows x[n:], which stay on disk."
        )
    rows = np.sort(rows)
    owner = None if samples.owner is None else samples.owner[rows]
    return replace(samples, x=samples.x[rows], y=samples.y[rows], owner=owner)


def _finished(parts: dict[str, Samples], about: Mapping[str, Any]) -> Dataset:
    train, test, val = parts["train"], parts["test"], parts.get("val")
    names = _texts(parts)
    given = about["classes"] is not None
    targets = {part: _targets(each.y, names, labels=given) for part, each in parts.items()}
    classes = about["classes"] if given else train.classes if names is None else len(names)
    if classes is None and all(y.ndim == 1 and y.dtype.kind in "iu" for y in targets.values()):
        classes = max(int(y.max(initial=0)) for y in targets.values()) + 1
    _say_missing(about["name"], classes, targets)
    return Dataset(
        x_train=_inputs(train.x),
        y_train=targets["train"],
        x_test=_inputs(test.x),
        y_test=targets["test"],
        x_val=None if val is None else _inputs(val.x),
        y_val=targets.get("val"),
        **{**about, "classes": classes},
        **_owners(train, test),
    )


def _say_missing(name: str, classes: int | None, targets: Mapping[str, Array]) -> None:
    """One line each where no training sample shows a class, and where others are judged by it."""
    if classes is None or any(y.ndim > 1 or isinstance(y, np.memmap) for y in targets.values()):
        return
    there = {part: set(np.unique(y).tolist()) for part, y in targets.items()}
    missing = sorted(set(range(classes)) - there["train"])
    if missing:
        LOGGER.warning(
            f"{name}: {len(missing)} of {classes} classes have no training sample: "
            f"{_listed(missing)}. No model can learn them."
        )
    for part in ("test", "val"):
        if unseen := sorted(there.get(part, set()) & set(missing)):
            count = int(np.isin(targets[part], unseen).sum())
            LOGGER.warning(
                f"{name}: {count:,} of {len(targets[part]):,} {part} samples are of classes "
                f"without a training sample: {_listed(unseen)}. Give training samples of them, or "
                "leave these out."
            )


def _listed(classes: list[int]) -> str:
    return ", ".join(map(str, classes[:10])) + (", ..." if len(classes) > 10 else "")


def _owners(train: Samples, test: Samples) -> dict[str, Any]:
    if train.owner is None:
        return {}
    known, role_train = np.unique(train.owner, return_inverse=True)
    found: dict[str, Any] = {"roles": tuple(map(str, known)), "role_train": role_train}
    if test.owner is not None:
        place = np.searchsorted(known, test.owner).clip(max=len(known) - 1)
        found["role_test"] = np.where(known[place] == test.owner, place, -1)
    return found


def _texts(parts: Mapping[str, Samples]) -> Array | None:
    """The different labels in order, where they are texts."""
    labels = [part.y for part in parts.values()]
    if not any(y.dtype.kind in "OUS" and y.ndim == 1 for y in labels):
        return None
    every = [label for y in labels if y.dtype.kind == "O" for label in y.reshape(-1)]
    missing = sum(
        label is None or (isinstance(label, float | np.floating) and bool(np.isnan(label)))
        for label in every
    )
    if missing:
        raise DataError(
            f"{missing:,} of {sum(map(len, labels)):,} labels are missing (None or NaN): fill them "
            "in, or leave these samples out."
        )
    try:
        return np.unique(np.concatenate(labels))
    except TypeError as error:
        raise DataError("The labels are a mixture of texts and numbers: use one kind.") from error


def _targets(y: Array, texts: Array | None, *, labels: bool) -> Array:
    """Labels as int64, other numbers as float32; what is on disk stays as it is.

    Where there must be ``labels``, floats that are whole numbers are taken for such.
    """
    if texts is not None:
        return np.searchsorted(texts, y).astype(np.int64)
    if isinstance(y, np.memmap):
        return y
    if labels and y.dtype.kind == "f" and np.array_equal(y, np.round(y)):
        return y.astype(np.int64)
    if y.dtype.kind == "b":
        return y.astype(np.int64 if y.ndim == 1 else np.float32)
    return y.astype({"f": np.float32, "i": np.int64, "u": np.int64}.get(y.dtype.kind, y.dtype))


def _inputs(x: Array) -> Array:
    """Numbers as float32; tokens, and what is on disk, as they are."""
    if isinstance(x, np.memmap) or x.dtype.kind not in "fb":
        return x
    return np.asarray(x, np.float32)


def _checked_lengths(samples: Samples) -> Samples:
    if samples.x.ndim == 0 or samples.y.ndim == 0 or len(samples.x) != len(samples.y):
        raise DataError(
            f"There are inputs of shape {samples.x.shape} and targets of shape {samples.y.shape}: "
            "give one target for every input."
        )
    return samples


def _is_array(source: Any) -> bool:
    return isinstance(source, np.ndarray) or hasattr(source, "detach")
