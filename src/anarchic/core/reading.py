"""What somebody else wrote: files and texts, read within limits and shown without side effects."""

from __future__ import annotations

import errno
import json
import os
import stat
from os import PathLike
from reprlib import Repr
from typing import Any

_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 2, 60, 60, 20
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_file(path: str | PathLike[str], *, most: int, follow: bool = True) -> bytes:
    """The bytes of a regular file of at most ``most`` bytes; anything else is an OSError.

    Opening a pipe or a device could wait for ever, so it is opened without waiting and looked at
    first. ``follow`` says whether a symbolic link is followed.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
    try:
        found = os.fstat(descriptor)
        _check(found, path, most)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(found.st_size)  # what is appended meanwhile is left out
    finally:
        os.close(descriptor)


def check_file(path: str | PathLike[str], *, most: int) -> None:
    """Refuse, with an OSError, what is not a regular file of at most ``most`` bytes."""
    _check(os.stat(path), path, most)


def reason(error: Exception) -> str:
    """Why something could not be read, without the number and the path of an OSError."""
    found = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return printable(found, most=300).rstrip(".") or type(error).__name__


def parse_json(text: str | bytes | bytearray) -> Any:
    """The value of a JSON text; a ValueError also for one that is nested too deeply.

    Numbers beyond the range of floats, such as 1e999, are refused: as infinity they would pass for
    sizes and rates. NaN and Infinity, which ``json`` writes, are read.
    """
    try:
        return _JSON.decode(text if isinstance(text, str) else str(text, "utf-8"))
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None


def shown(value: object) -> str:
    """A value that was found, for an error message: printable, ASCII and short."""
    text = _SHORT.repr(value).encode("ascii", "backslashreplace").decode()
    return text if len(text) <= 100 else f"{text[:97]}..."


def printable(text: str, *, most: int = 2_000, keep: str = "") -> str:
    """A text for a terminal or a log: other characters escaped, except ``keep``, and cut short."""
    short = text if len(text) <= most else f"{text[:most]}..."
    if short.isprintable():
        return short
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in short)


def _escaped(character: str) -> str:
    return ascii(character)[1:-1]


def _check(found: os.stat_result, path: str | PathLike[str], most: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(errno.EINVAL, f"It is {kind}, not a file", os.fspath(path))
    if found.st_size > most:
        told = f"It has {found.st_size} bytes, at most {most} are read"
        raise OSError(errno.EFBIG, told, os.fspath(path))


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


_JSON = json.JSONDecoder(parse_float=_finite)
