"""A task as one parcel for the machines of a cluster: its arrays once, and never copied."""

from __future__ import annotations

import io
import mmap
import pickle
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.train.task import Task


@dataclass(frozen=True)
class Parcel:
    """A task as the object store takes it: code and settings, and apart from them the arrays.

    Ray maps the arrays into every actor of a machine, which therefore holds them once, however
    many actors there are. A task has its data under several names (a tensor, its NumPy view, the
    data set they were made of); ``order`` says which buffer each of them is.
    """

    pickled: bytes
    buffers: list[NDArray[np.uint8]]
    order: list[int]


def packed(task: Task) -> Parcel:
    from ray import cloudpickle  # also takes what a user defined in a notebook

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # ray has no types here
        def reducer_override(self, obj: Any) -> Any:
            return _as_file(obj) or _as_array(obj) or super().reducer_override(obj)

    found: dict[tuple[int, int], int] = {}
    buffers: list[NDArray[np.uint8]] = []
    order: list[int] = []

    def note(buffer: pickle.PickleBuffer) -> None:
        array = np.frombuffer(buffer.raw(), np.uint8)
        place = array.ctypes.data, array.nbytes
        if place not in found:
            found[place] = len(buffers)
            buffers.append(array)
        order.append(found[place])

    stream = io.BytesIO()
    Pickler(stream, protocol=5, buffer_callback=note).dump(task)
    return Parcel(stream.getvalue(), buffers, order)


def unpacked(parcel: Parcel) -> Task:
    """The task, its arrays where the parcel's lie."""
    task: Task = pickle.loads(
        parcel.pickled, buffers=[parcel.buffers[index] for index in parcel.order]
    )
    return task


def _as_array(value: Any) -> Any:
    """How to make a plain tensor of an array; torch's own way would copy its numbers."""
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor or value.requires_grad:
        return None
    if value.device.type != "cpu" or value.dtype is torch.bfloat16:  # NumPy has no such thing
        return None
    return _tensor, (value.numpy(),)


def _as_file(value: Any) -> Any:
    """How to map an array on disk again: by its path, which every machine must have."""
    if not isinstance(value, np.memmap) or value.filename is None or not value.flags.c_contiguous:
        return None
    # Of a slice, NumPy tells the offset of the whole; pages begin where mmap lets them.
    page = value.offset - value.offset % mmap.ALLOCATIONGRANULARITY
    within = value.ctypes.data - np.frombuffer(value._mmap, np.uint8).ctypes.data  # type: ignore[attr-defined]  # NumPy's own
    return _mapped, (str(value.filename), value.dtype.str, page + within, value.shape)


def _mapped(path: str, dtype: str, offset: int, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.memmap(path, dtype, "r", offset, shape)


def _tensor(array: NDArray[Any]) -> Any:
    import torch

    with warnings.catch_warnings():  # that it must not be written to: a task does not
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)
