"""Samples from torch's data sets and loaders, and from lists of (input, target)."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anarchic.core.reading import printable
from anarchic.data.frames import Array, Samples, pixels, stacked
from anarchic.data.loaders import loaded_set
from anarchic.errors import DataError


def is_torch_set(source: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    kinds = torch.utils.data
    return isinstance(source, kinds.Dataset | kinds.DataLoader)


def from_torch(source: Any) -> Samples:
    """The samples of a torch data set, or of those that a loader reads, each read once."""
    kinds = sys.modules["torch"].utils.data
    if isinstance(source, kinds.DataLoader):
        source = loaded_set(source)
    if isinstance(source, kinds.IterableDataset):
        raise DataError(
            f"{type(source).__name__} is an IterableDataset: its samples have no numbers, by which "
            "workers draw them. Read it once, Dataset.of(list(stream)), or give a data set with "
            "__getitem__ and __len__."
        )
    # A subclass may have a __getitem__ of its own, such as a transform: it is read by number.
    if type(source) is kinds.ConcatDataset:
        return _joined([from_torch(each) for each in source.datasets])
    if type(source) is kinds.TensorDataset:
        x, y = _pair(source.tensors)
        return Samples(array_of(x), array_of(y))
    if type(source) is kinds.Subset and type(source.dataset) is kinds.TensorDataset:
        rows = np.asarray(source.indices, np.int64)
        whole = from_torch(source.dataset)
        return Samples(whole.x[rows], whole.y[rows])
    return from_pairs(source)


def from_pairs(source: Any) -> Samples:
    """The samples of anything with a length that gives (input, target) by number."""
    try:
        count = len(source)
    except TypeError as error:
        raise DataError(
            f"{type(source).__name__} has no length: give it __len__, the number of its samples."
        ) from error
    if count == 0:
        raise DataError(f"{type(source).__name__} has no samples.")
    first = _input_of(source, 0)[0]
    _check_size(count * first.nbytes)
    x, y = np.empty((count, *first.shape), first.dtype), []
    for number in range(count):
        value, target = _input_of(source, number)
        if value.shape != first.shape:
            raise DataError(
                f"Input {number} has shape {value.shape}, input 0 {first.shape}: pad or cut all "
                "inputs to one shape."
            )
        x[number] = value
        refuse_several(f"Target {number}", target, "loss=")
        y.append(target if target is None or isinstance(target, str) else array_of(target))
    return Samples(x, stacked("the targets", y))


def _input_of(source: Any, number: int) -> tuple[Array, Any]:
    try:
        sample = source[number]
    except DataError:
        raise
    except Exception as error:  # whatever a data set of the user's raises
        raise DataError(
            f"{type(source).__name__} fails to give its sample {number} ({type(error).__name__}: "
            f"{printable(str(error).strip().partition(chr(10))[0], most=200)}): mend its "
            "__getitem__, or leave the sample out with a Subset."
        ) from error
    given, target = _pair(sample)
    refuse_several(f"Input {number}", given, "forward=, or in a module around yours")
    return sample_of(given), target


def refuse_several(what: str, value: Any, where: str) -> None:
    """Refuse several arrays; a list of numbers, also in lists, is one array."""
    if isinstance(value, Mapping):
        found = f"a {type(value).__name__} with the keys {', '.join(map(str, value))}"
    elif isinstance(value, tuple) or (
        isinstance(value, list) and any(hasattr(each, "shape") for each in value)
    ):
        shapes = [_shape(each) for each in value]
        if not any(shapes):
            return
        found = f"a {type(value).__name__} of shapes {', '.join(map(str, shapes))}"
    else:
        return
    raise DataError(
        f"{what} is {found}: several arrays per sample are not supported. Join them into one array "
        f"(flatten and concatenate, or stack equal shapes), and split it again in {where}."
    )


def sample_of(value: Any) -> Array:
    """One input; an image of Pillow's has its channels first and values from 0 to 1."""
    return pixels(value) if hasattr(value, "getbands") else array_of(value)


def array_of(value: Any) -> Array:
    """An array, tensor, column or number in NumPy; arrays on disk stay there."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        count = int(np.ma.getmaskarray(value).sum())
        raise DataError(
            f"The array is masked in {count:,} places: fill them in, x.filled(...), or leave these "
            "samples out."
        )
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "tocsr") and hasattr(value, "toarray"):
        raise DataError(
            f"The array is a {type(value).__name__} of scipy.sparse, with {value.shape} values: "
            f"give x.toarray(), which takes {_gib(value)} GiB."
        )
    if hasattr(value, "detach") and str(value.layout) != "torch.strided":
        raise DataError(
            f"The tensor is sparse ({value.layout}), with {tuple(value.shape)} values: give "
            f"x.to_dense(), which takes {_gib(value)} GiB."
        )
    if hasattr(value, "detach"):  # a tensor
        tensor = value.detach().cpu()
        kind = str(tensor.dtype)
        return np.asarray((tensor.float() if kind == "torch.bfloat16" else tensor).numpy())
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    return stacked("the array", value) if isinstance(value, list | tuple) else np.asarray(value)


def _gib(sparse: Any) -> str:
    """What it takes as float32."""
    return f"{4 * math.prod(sparse.shape) / 2**30:.3g}"


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape if hasattr(value, "shape") else np.asarray(value, object).shape)


def _pair(sample: Any) -> tuple[Any, Any]:
    if isinstance(sample, Mapping):
        keys = list(sample)
        one, other = map(repr, keys) if len(keys) == 2 else ("INPUT", "TARGET")
        raise DataError(
            "A sample must be (input, target), got a dict with the keys "
            f"{', '.join(map(str, keys))}: write a small Dataset around this one, whose "
            f"__getitem__ reads a sample and returns (sample[{one}], sample[{other}])."
        )
    if not isinstance(sample, Sequence) or isinstance(sample, str) or len(sample) != 2:
        found = (
            f"{len(sample)} parts" if isinstance(sample, tuple | list) else type(sample).__name__
        )
        raise DataError(
            f"A sample must be (input, target), got {found}: wrap the data set so that "
            "__getitem__ gives these two."
        )
    return sample[0], sample[1]


def _joined(parts: list[Samples]) -> Samples:
    shapes = [part.x.shape[1:] for part in parts]
    if len(set(shapes)) > 1:
        raise DataError(
            f"The joined data sets have inputs of shapes {', '.join(map(str, shapes))}: give all "
            "one shape."
        )
    x, y = ([getattr(part, name) for part in parts] for name in ("x", "y"))
    return Samples(np.concatenate(x), np.concatenate(y))


def _check_size(size: int) -> None:
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not known here
        return
    if size > memory:
        raise DataError(
            f"The inputs take {size / 2**30:,.0f} GiB, the memory is {memory / 2**30:,.0f} GiB: "
            "write them to a .npy file once and give np.load(file, mmap_mode='r')."
        )
