"""Where several runs are kept: a directory with a file per run, or a schema per run.

A name that comes from elsewhere is checked before it becomes a path or an identifier.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, final

from sqlalchemy.engine import URL, make_url

from anarchic.core.files import make_private_folder
from anarchic.core.names import RUN_NAME, check_run_name
from anarchic.core.reading import reason
from anarchic.errors import ConfigError, StoreUnavailable

SUFFIX = ".db"
# Schemas that hold a store: each has this table.
_SCHEMAS = """
SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = 'store_schema' AND c.relkind = 'r'
"""


class Stamp(NamedTuple):
    """What a store looks like from outside, where that can be seen."""

    file: Hashable = None  # while it is open no other file has the same
    contents: Hashable = None


class Places(Protocol):
    """The runs that are kept together."""

    def names(self) -> list[str]:
        """Of the runs that are there now, sorted."""

    def place(self, name: str) -> str:
        """The address of one run's store, for ``open_store``."""

    def stamp(self, name: str) -> Stamp:
        """By which to see whether a store was replaced or changed."""

    def create(self, name: str) -> str:
        """Make room for a run; returns the address of its store, which need not exist yet."""

    def close(self) -> None: ...


@final
class Directory:
    """A file per run: ``DIR/NAME.db``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str]:
        try:
            found = [entry.name for entry in os.scandir(self._path)]
        except OSError as error:
            raise StoreUnavailable(
                f"The directory {self._path} cannot be read: {reason(error)}. Give the directory "
                "that 'anarchic run create' was given."
            ) from error
        stems = (name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))
        return sorted(stem for stem in stems if RUN_NAME.fullmatch(stem))

    def place(self, name: str) -> str:
        return str(self._path / (check_run_name(name) + SUFFIX))

    def stamp(self, name: str) -> Stamp:
        with suppress(OSError):
            found = os.stat(self.place(name))
            return Stamp((found.st_dev, found.st_ino), (found.st_mtime_ns, found.st_size))
        return Stamp()

    def create(self, name: str) -> str:
        place = self.place(name)
        if not self._path.is_dir():
            make_private_folder(self._path)
        return place

    def close(self) -> None:
        """Nothing is open."""


@final
class Schemas:
    """A schema per run in one PostgreSQL."""

    def __init__(self, url: URL) -> None:
        if "run" in url.query or "search_path" in str(url.query.get("options", "")):
            raise ConfigError(
                "The address names the schema of one run: leave out run=... and search_path, "
                "where the database holds several."
            )
        self._url = url
        self._connection: Any = None  # of psycopg, kept for ``names``

    def names(self) -> list[str]:
        import psycopg

        try:
            if self._connection is None:
                self._connection = self._connect()
            found = self._connection.execute(_SCHEMAS).fetchall()
        except psycopg.Error as error:
            self.close()
            raise StoreUnavailable(
                f"The database cannot be asked for its runs: {str(error).strip()[:200]}. Check "
                "that it runs and can be reached."
            ) from error
        return sorted(name for (name,) in found if RUN_NAME.fullmatch(name))

    def place(self, name: str) -> str:
        url = self._url.update_query_dict({"run": check_run_name(name)})
        return url.render_as_string(hide_password=False)

    def stamp(self, name: str) -> Stamp:
        """Nothing: PostgreSQL has one store per schema, and says itself when it is gone."""
        return Stamp()

    def create(self, name: str) -> str:
        from psycopg import sql

        place = self.place(name)
        with closing(self._connect()) as connection:
            query = sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(name))
            connection.execute(query)
        return place

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> Any:
        import psycopg

        plain = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
        try:
            return psycopg.connect(plain, autocommit=True, connect_timeout=10)
        except psycopg.Error as error:
            raise StoreUnavailable(
                f"The database cannot be reached: {str(error).strip()[:200]}. Check that it runs."
            ) from error


def is_copy(other: str) -> str:
    """What to say of a run that is kept under two names."""
    return (
        f"It is the same run as {other}, so one is a copy of the other, and both are served: stop "
        "the server, and move the copy to another place."
    )


def places_at(where: str | Path) -> Places:
    """The runs in a directory, or in the database at a ``postgresql://`` address."""
    text = str(where)
    if text.startswith(("postgresql://", "postgresql+", "postgres://")):
        return Schemas(make_url(text.replace("postgres://", "postgresql://", 1)))
    if "://" in text:
        raise ConfigError(
            "Several runs are kept in a directory, or in PostgreSQL (postgresql://...); "
            f"got {text.partition('://')[0]}://..."
        )
    if Path(where).is_file():
        raise ConfigError(f"{where} is the store of one run; give the directory of several.")
    return Directory(Path(where))


def place_of(where: str, run: str | None) -> str:
    """The address of one run's store, named by itself or as one of several that are kept there."""
    if run is not None:
        with closing(places_at(where)) as places:
            if run not in places.names():
                known = ", ".join(places.names()) or "none"
                raise ConfigError(f"There is no run {run!r} in {where}; there are: {known}.")
            return places.place(run)
    return where


def in_schema(url: URL) -> URL:
    """An address with ``run=NAME`` as one that leads to the schema of that name."""
    name = url.query.get("run")
    if name is None:
        return url
    check_run_name(str(name))
    options = f'{url.query.get("options", "")} -csearch_path="{name}"'.strip()
    return url.difference_update_query(["run"]).update_query_dict({"options": options})
