"""Taking single files out of a tar or zip archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from anarchic.core.files import write_file
from anarchic.errors import DataError

LARGEST_MEMBER = 64 * 2**20
"""The most bytes one file may unpack to; ours have 31 MB at most."""


def unpack(archive: Path, members: Mapping[str, str], folder: Path) -> None:
    """Write the named members of ``archive`` into ``folder``, under the names given for them.

    Only the names in ``members`` are used, never a path, link or mode from the archive, so a
    hostile archive has nothing to write outside ``folder``.
    """
    import tarfile
    import zipfile
    import zlib

    take = _from_zip if archive.suffix == ".zip" else _from_tar
    try:
        take(archive, members, folder)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise DataError(
            f"{archive} is damaged or another archive than expected: {error}. Delete it and "
            "fetch it again."
        ) from error
    except OSError as error:
        raise DataError(
            f"{archive} cannot be unpacked into {folder}: {error}. Make room there, or choose "
            "another place with data_dir or ANARCHIC_DATA."
        ) from error


def _from_tar(archive: Path, members: Mapping[str, str], folder: Path) -> None:
    import tarfile

    missing = dict(members)
    with tarfile.open(archive, "r|*") as tar:  # a stream: the members are read in file order
        for entry in tar:
            if entry.name in missing and (body := tar.extractfile(entry)):
                target = folder / missing.pop(entry.name)
                write_file(target, _bounded(body, target.name))
    if missing:
        raise KeyError(f"it has no {', '.join(sorted(missing))}")


def _from_zip(archive: Path, members: Mapping[str, str], folder: Path) -> None:
    import zipfile

    with zipfile.ZipFile(archive) as zipped:
        for member, name in members.items():
            with zipped.open(member) as body:
                write_file(folder / name, _bounded(body, name))


def _bounded(body: IO[bytes], name: str) -> Iterator[bytes]:
    left = LARGEST_MEMBER
    while chunk := body.read(1 << 20):
        left -= len(chunk)
        if left < 0:
            raise EOFError(f"{name} in it is larger than {LARGEST_MEMBER:,} bytes")
        yield chunk
