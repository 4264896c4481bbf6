"""Fetch one file over HTTP, and take files out of archives.

A download is resumed after a cut, limited in size, and verified before it is used.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import file_digest
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from anarchic.core.files import part_of, write_file
from anarchic.data.mirrors import Source
from anarchic.errors import DataError, DownloadError

_CHUNK = 1 << 18
LARGEST_MEMBER = 64 * 2**20
"""The most bytes one file may unpack to; ours have 31 MB at most."""


class _MirrorError(Exception):
    """This mirror cannot send the file; another may."""


def fetch(source: Source, folder: Path, *, timeout_s: float = 30.0, attempts: int = 5) -> Path:
    """Download ``source`` into ``folder`` under its own name and return its path.

    The bytes go to a ``.part`` file. It is kept after a cut connection or the end of the process,
    and the next attempt continues it, from any mirror. Only a file with the right size and checksum
    gets its final name. ``timeout_s`` limits the wait for each piece, ``attempts`` the connections
    per mirror. The caller makes sure that only one process at a time downloads a file.
    """
    target = folder / source.name
    part = part_of(target)
    failures = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A .part file of an earlier process may be bad: the first mirror is then asked once more.
        for url in source.urls + (source.urls[:1] if part.exists() else ()):
            try:
                _gather(url, part, source, timeout_s=timeout_s, attempts=attempts)
                _verify(part, source)
            except _MirrorError as failure:
                failures.append(f"{url}: {failure}")
            else:
                return part.replace(target)
    except OSError as error:
        raise DownloadError(
            f"cannot write {target}: {error.strerror or error}. Choose another folder with "
            "data_dir or the environment variable ANARCHIC_DATA."
        ) from error
    raise DownloadError(f"no mirror has a good copy of {source.name} ({'; '.join(failures)}).")


def _gather(url: str, part: Path, source: Source, *, timeout_s: float, attempts: int) -> None:
    """Fill ``part`` from one mirror, continuing where the last connection was cut."""
    reason = "not tried"
    for _ in range(attempts):
        before = _bytes_in(part)
        if before == source.size:
            return
        try:
            total = _stream(url, part, source, timeout_s)
            if total is None or _bytes_in(part) == total:
                return
            reason = f"connection closed after {_bytes_in(part):,} of {total:,} bytes"
        except HTTPError as error:
            reason = f"HTTP {error.code} {error.reason}"
            if error.code == 416 and before:  # the mirror has fewer bytes: ours are of another file
                part.unlink()
                continue
        except (OSError, HTTPException) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        if _bytes_in(part) <= before:
            break  # trying again would only repeat the failure
    raise _MirrorError(reason)


def _stream(url: str, part: Path, source: Source, timeout_s: float) -> int | None:
    """Append what the mirror sends; return the size of the whole file, where it is known."""
    have = _bytes_in(part)
    headers = {"User-Agent": "anarchic-data", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with urlopen(Request(url, headers=headers), timeout=timeout_s) as response:
        have = have if _continues(response, have) else 0
        total = None if response.length is None else have + response.length
        if total is not None and (total > source.limit or source.size not in (None, total)):
            raise _MirrorError(f"offers {total:,} bytes where {source.limit:,} are expected")
        _append(response, part, have, total, source)
    return source.size if total is None else total


def _append(body: HTTPResponse, part: Path, have: int, total: int | None, source: Source) -> None:
    """Copy the body to ``part`` from position ``have`` on, never past the source's limit."""
    shown = _progress(source.name, total or source.size)
    with part.open("ab" if have else "wb") as out, shown as show:
        while have != total and (chunk := body.read1(_CHUNK)):
            have += len(chunk)
            if have > source.limit:
                break
            out.write(chunk)
            show(have)
    if have > source.limit:
        part.unlink()
        raise _MirrorError(f"sent more than the expected {source.limit:,} bytes")


def _continues(response: HTTPResponse, have: int) -> bool:
    """Whether the body starts at byte ``have``; a server may ignore Range and send everything."""
    content_range = response.headers.get("Content-Range", "")
    return response.status == 206 and content_range.startswith(f"bytes {have}-")


def _verify(part: Path, source: Source) -> None:
    """Refuse, and delete, a complete file that is not the published one."""
    if source.sha256 is None:
        return
    with part.open("rb") as file:
        found = file_digest(file, "sha256").hexdigest()
    if found != source.sha256:
        size = _bytes_in(part)
        part.unlink()
        raise _MirrorError(f"sha256 {found} of {size:,} bytes, expected {source.sha256}")


def _bytes_in(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


@contextmanager
def _progress(name: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show progress; call the function with the number of bytes of ``name`` received so far."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
    except ImportError:
        sys.stderr.write(f"Fetching {name} ...\n")
        yield lambda done: None
        return
    columns = ("[progress.description]{task.description}", BarColumn(), DownloadColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=total)
        yield lambda done: bar.update(task, completed=done)


def unpack(archive: Path, members: Mapping[str, str], folder: Path) -> None:
    """Write the named members of ``archive`` into ``folder``, under the names given for them.

    Only the names in ``members`` are used, never a path, link or mode from the archive, so a
    hostile archive has nothing to write outside ``folder``.
    """
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
    missing = dict(members)
    with tarfile.open(archive, "r|*") as tar:  # a stream: the members are read in file order
        for entry in tar:
            if entry.name in missing and (body := tar.extractfile(entry)):
                target = folder / missing.pop(entry.name)
                write_file(target, _bounded(body, target.name))
    if missing:
        raise KeyError(f"it has no {', '.join(sorted(missing))}")


def _from_zip(archive: Path, members: Mapping[str, str], folder: Path) -> None:
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
