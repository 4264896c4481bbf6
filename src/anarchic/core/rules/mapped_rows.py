"""Rows of AFA-CS in files that the operating system maps into memory."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections import OrderedDict
from pathlib import Path
from typing import Any, final

import numpy as np

from anarchic.core.arrays import zeros
from anarchic.core.rules.rows import Arrays, BlockRows, Numbers
from anarchic.core.types import Matrix, Vector
from anarchic.errors import ConfigError, RunError

MOST_OPEN = 32  # blocks mapped at a time, each of which holds a file open


@final
class MappedRows(BlockRows):
    """Rows in files below ``directory`` (None: where temporary files go), a file a block.

    The same bytes as in memory. The system keeps in memory what it has room for; for more workers
    than that, an update waits for the disk to read and write its row. The files are the working
    memory of one process and go with it: what outlives it is what ``pack`` gives, which is made
    in memory. ``functools.partial(MappedRows, directory="rows")`` is what ``AfaCs`` takes.
    """

    def __init__(self, like: Vector, directory: str | Path | None = None) -> None:
        if not isinstance(like, np.ndarray):
            raise ConfigError("Mapped rows are for models in main memory: use rows='memory'.")
        super().__init__(like)
        self._directory = directory
        if directory is not None:
            Path(directory).mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.mkdtemp(prefix="anarchic-rows-", dir=directory)
        self._mapped: OrderedDict[int, Matrix] = OrderedDict()  # the last used last
        self._files = 0
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has files of its own."""
        return _again, (zeros(self._like, (self._dim,)), self._directory, *self.pack())

    def _another(self) -> MappedRows:
        return MappedRows(zeros(self._like, (self._dim,)), self._directory)

    def _block(self, number: int) -> Matrix:
        block = self._mapped.pop(number, None)
        if block is None:
            shape = (self._per_block, self._dim)
            block = np.memmap(self._path(number), self._like.dtype, "r+", shape=shape)
        self._mapped[number] = block
        if len(self._mapped) > MOST_OPEN:
            self._mapped.popitem(last=False)  # unmapped when the last row that was got is gone
        # An array like any other: a memmap spends microseconds on every slice of it.
        return block.view(np.ndarray)

    def _grow(self) -> int:
        size = max(1, self._per_block * self._dim * self._like.dtype.itemsize)
        try:
            _reserve(self._path(self._files), size)
        except OSError as error:
            raise RunError(
                f"Cannot make room for {size} bytes of rows in {self._folder} ({error}): free "
                "space, or give rows another directory."
            ) from error
        self._files += 1
        return self._per_block

    def _path(self, number: int) -> Path:
        return Path(self._folder, f"{number:06d}")


def _reserve(path: Path, size: int) -> None:
    """A file of zeros that has its room on the disk: a full one would kill the process later."""
    with path.open("wb") as file:
        file.truncate(size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def _again(
    like: Vector, directory: str | Path | None, arrays: Arrays, numbers: Numbers
) -> BlockRows:
    return MappedRows(like, directory).unpack(arrays, numbers)
