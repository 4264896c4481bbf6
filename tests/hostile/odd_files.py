"""Files that no honest person brings, and how a reader must refuse them."""

import os
import socket
import tracemalloc

from anarchic.core.reading import printable
from anarchic.errors import AnarchicError

DEEP = b"[" * 100_000
GIANT = b"x" * 200_000  # longer than a field of the csv module may be
CONTENTS = {
    "empty": b"",
    "one byte": b"{",
    "deep list": DEEP,
    "deep object": b'{"a":' * 100_000,
    "infinite": b'{"a": 1e999}',
    "not a number": b"NaN",
    "many digits": b"9" * 5_000,
    "giant field": b"worker,from_s,until_s\n" + GIANT + b",0,1\n",
    "null bytes": b"\x00" * 300,
    "not utf-8": b"\xff\xfe\xfd",
    "escapes": b"\x1b]0;mine\x07",
    "a list": b"[1, 2]",
    "a string": b'"text"',
    "null": b"null",
    "endless header": b"\xff" * 8,
    "deep header": len(DEEP).to_bytes(8, "little") + DEEP,
}
KINDS = ["missing", "directory", "fifo", "loop", "device", "socket", "huge"]
# What these readers may take: an empty file has no rows, and a token is any text of its form.
FINE = {
    *(("metrics", what) for what in ("empty", "missing")),
    *(("token", what) for what in CONTENTS),
    *((name, "missing") for name in ("summary", "checkpoint")),
    *((name, "loop") for name in ("summary", "checkpoint", "metrics")),  # counts as missing
}


def make(path, what):
    """Something at ``path`` that is no file of the kind that is wanted."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    if what in CONTENTS:
        path.write_bytes(CONTENTS[what])
    elif what == "directory":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "loop":
        path.symlink_to(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    elif what == "huge":
        with open(path, "wb") as file:
            file.truncate(1 << 40)


def sentence(error):
    """What the command line would print of it, on one line and not a page long."""
    text = str(error) if isinstance(error, AnarchicError) else f"{error.filename}: {error.strerror}"
    assert printable(text) == text, "not printable, or too long"
    return text


def refused(read, path, name, what):
    tracemalloc.start()
    try:
        read(path)
        assert (name, what) in FINE, "it was taken"
    except (AnarchicError, OSError) as error:
        sentence(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 64 << 20
