"""Find and read the files of a data set.

Searched in this order: ``data_dir``, the folder in the environment variable ``ANARCHIC_DATA``, the
user's cache, and the system's copy. Each has one folder per data set; a file may be plain, ``.gz``
or ``.xz``. A file that is in none of them is downloaded.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

from anarchic.core.files import locked
from anarchic.core.reading import read_file, reason
from anarchic.data.dataset import Folder
from anarchic.data.mirrors import SOURCES, Source
from anarchic.errors import DataError, DownloadError

MAX_BYTES = 1 << 28  # of a data file, compressed or not; the largest has 47 MB
_SUFFIXES = ("", ".gz", ".xz")

_SUBFOLDERS = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}
"""The folder that an archive unpacks to when it is unpacked by hand."""

_SYSTEM_FOLDERS = {"fashion-mnist": Path("/usr/share/datasets/fashion-mnist")}
"""Debian's package dataset-fashion-mnist."""


def find(folder: str, filename: str, data_dir: Folder = None) -> Path:
    """Path of a data file, plain or compressed; downloaded if it is not found.

    ``folder`` is the data set's (``"mnist"``), ``filename`` the uncompressed name.
    """
    folders = [root / folder for root in roots(data_dir)]
    searched = _searched(folder, folders)
    if found := _first(searched, [filename + suffix for suffix in _SUFFIXES]):
        return found
    source = SOURCES.get(folder, {}).get(filename)
    if source is None:
        raise DataError(
            f"{folder}/{filename} is not in {', '.join(map(str, searched))}, and no mirror of it "
            f"is known. Put it at {folders[0] / filename}."
        )
    return _obtain(source, filename, folders, searched)


def locate(folder: str, data_dir: Folder = None) -> Path | None:
    """The folder with the files of a data set, or with the archive that holds them.

    None if one of them is missing; nothing is downloaded.
    """
    searched = _searched(folder, [root / folder for root in roots(data_dir)])
    found = None
    for filename, source in SOURCES[folder].items():
        found = _first(searched, [*(filename + suffix for suffix in _SUFFIXES), source.name])
        if found is None:
            return None
    return None if found is None else found.parent


def read(path: Path) -> bytes:
    """The whole content of a data file, decompressed."""
    import gzip
    import lzma
    import zlib

    kinds: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}  # both take files as well
    expand = kinds.get(path.suffix, nullcontext)
    try:
        with expand(io.BytesIO(read_file(path, most=MAX_BYTES))) as file:
            # In pieces: a small file may hold more than the memory does.
            pieces = iter(lambda: file.read(1 << 20), b"")
            content = b"".join(islice(pieces, MAX_BYTES >> 20))
            if file.read(1):
                raise damaged(path, f"it holds more than {MAX_BYTES:,} bytes")
            return content
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        size = path.stat().st_size
        raise damaged(path, f"its {size:,} bytes do not decompress ({error})") from error
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {reason(error)}. Make it readable, or name a folder "
            "with another copy by data_dir or ANARCHIC_DATA."
        ) from error


def damaged(path: Path, found: str) -> DataError:
    """The error for a file with wrong content; ``found`` says what it holds."""
    return DataError(
        f"{path} is damaged or not the expected file: {found}. Delete it and load again to fetch "
        "a fresh copy, or put a good copy in its place."
    )


def roots(data_dir: Folder) -> list[Path]:
    """The folders that are searched, each with one folder per data set."""
    named = [data_dir, os.environ.get("ANARCHIC_DATA")]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return [Path(place).expanduser() for place in named if place] + [Path(cache) / "anarchic"]


def _searched(folder: str, folders: Iterable[Path]) -> list[Path]:
    inside = ("", _SUBFOLDERS[folder]) if folder in _SUBFOLDERS else ("",)
    system = [_SYSTEM_FOLDERS[folder]] if folder in _SYSTEM_FOLDERS else []
    return [target / name for target in folders for name in inside] + system


def _first(folders: Iterable[Path], names: Iterable[str]) -> Path | None:
    names = list(names)
    paths = (folder / name for folder in folders for name in names)
    return next((path for path in paths if path.is_file()), None)


def _obtain(source: Source, filename: str, folders: list[Path], searched: list[Path]) -> Path:
    """Get a file from its mirrors or its archive, into the first folder that can be written."""
    target = next((target for target in folders if _writable(target)), folders[-1])
    try:
        target.mkdir(parents=True, exist_ok=True)
        with locked(target):  # two processes that start together must not share a .part file
            if fetched := _first([target], [filename, source.name][: 1 if source.members else 2]):
                return fetched  # another process fetched it meanwhile
            return _bring(source, filename, target, searched)
    except (DownloadError, OSError) as error:
        why = str(error)
        if isinstance(error, OSError):
            why = f"cannot write to {target}: {error.strerror or error}."
        raise DownloadError(
            f"{source.name} is not in {', '.join(map(str, searched))}, and could not be "
            f"downloaded: {why} Without a network, put the file at {folders[0] / source.name}, or "
            f"set ANARCHIC_DATA to a folder that holds {target.name}/{source.name}."
        ) from error


def _bring(source: Source, filename: str, target: Path, searched: list[Path]) -> Path:
    from anarchic.data.download import fetch, unpack

    if not source.members:
        return fetch(source, target)
    by_hand = _first(searched, [source.name])
    archive = by_hand or fetch(source, target)
    try:
        unpack(archive, source.members, target)
    finally:
        if by_hand is None:  # unpacked, or of no use
            archive.unlink()
    return target / filename


def _writable(folder: Path) -> bool:
    """Whether ``folder`` can be written, or made in the nearest parent that exists.

    A folder without any write bit is left alone, even if root could change it.
    """
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    may_change = existing.stat().st_mode & 0o222 and os.access(existing, os.W_OK)
    return existing.is_dir() and bool(may_change)
