"""``--trace``: reading who reported when, in a server or in an earlier run."""

from __future__ import annotations

from pathlib import Path

from anarchic import wire
from anarchic.errors import RunError
from anarchic.participation.timetable import Timetable


def read_trace(where: str) -> Timetable:
    """The timetable in a run directory, in a file of one, or in the store of a server."""
    path = Path(where)
    if path.is_dir():
        path = path / "timetable.safetensors"
    if path.suffix == ".safetensors":
        return Timetable.from_arrays(*wire.read(path))
    from anarchic.server.replay import timetable_of
    from anarchic.server.store import open_store

    if "://" not in where and not path.is_file():
        raise RunError(f"There is no trace {where}: give a server's store or a run directory.")
    store = open_store(where)
    try:
        return timetable_of(store)
    finally:
        store.close()
