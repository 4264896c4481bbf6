"""Copies of a SQLite store, made while its server runs."""

from __future__ import annotations

import os
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from anarchic.core.files import make_private, sync
from anarchic.errors import ConfigError, StoreUnavailable
from anarchic.server.database import path_of
from anarchic.server.filelock import NEW

BUSY_S = 30.0  # how long to wait for a server that writes


def backup_store(where: str | Path, out: Path) -> Path:
    """Copy a store in SQLite to ``out``; a server may run meanwhile and waits while it is read."""
    path = path_of(where)
    if path is None:
        raise ConfigError(
            "A store in PostgreSQL is backed up with pg_dump, in one transaction: "
            "pg_dump --format=custom --file=FILE ADDRESS."
        )
    if not path.is_file():
        raise ConfigError(f"There is no store {path}: give the path that the server was given.")
    return copy_file(path, out)


def copy_file(path: Path, out: Path) -> Path:
    """A copy of a moment of the database, complete or not at all, readable by its owner only."""
    if not out.parent.is_dir():
        raise ConfigError(f"There is no directory {out.parent} for {out}: create it first.")
    if os.path.lexists(out):
        raise ConfigError(f"{out} exists already: give a name that is free, or remove it first.")
    fresh = out.with_name(f"{out.name}.{uuid.uuid4().hex}{NEW}")
    source = f"file:{quote(str(path.resolve()))}?mode=rw"  # rw: to undo an interrupted write first
    try:
        make_private(fresh)
        with (
            closing(sqlite3.connect(source, uri=True, timeout=BUSY_S)) as ours,
            closing(sqlite3.connect(fresh)) as copy,
        ):
            ours.backup(copy, sleep=0.001)  # a busy server leaves short gaps
            found = copy.execute("PRAGMA integrity_check(1)").fetchone()
            if found != ("ok",):
                raise StoreUnavailable(
                    f"The copy of {path} is damaged, since {path} is: {found[0]}. See "
                    f"`anarchic store check {path}`."
                )
        sync(fresh)
        os.link(fresh, out)  # unlike a move, it never writes over a file that came meanwhile
        sync(out.parent)
    except sqlite3.Error as error:
        raise StoreUnavailable(
            f"{path} cannot be copied to {out}: {error}. Check both disks."
        ) from error
    finally:
        for suffix in ("", "-journal"):
            fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)
    return out
