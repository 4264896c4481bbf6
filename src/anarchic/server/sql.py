"""Where a store is: which database a path or an address means."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from anarchic.errors import ConfigError
from anarchic.server.database import Database
from anarchic.server.sql_store import SqlStore
from anarchic.server.store import HISTORY, Store


def open_store(
    where: str | Path,
    *,
    keep_payloads: bool | None = None,
    history: int = HISTORY,
    create: bool = True,
) -> Store:
    """The store at a path (or ``sqlite:///path``) or at a ``postgresql://`` address.

    It is created where there is none, unless a file must be there (``create=False``, for those who
    only read: a mistyped path creates nothing). ``history`` is how many versions of the model
    are kept. With ``keep_payloads`` the bodies of updates stay after they were folded, and the
    first model stays too, for a replay; by default a run goes on as it has done, and a new one
    does not keep them. The run records what it does.
    """
    if history < 1:
        raise ConfigError(f"A store keeps at least the newest model, got history={history}.")
    return SqlStore(_database(where, create=create), keep_payloads=keep_payloads, history=history)


def _database(where: str | Path, *, create: bool) -> Database:
    if isinstance(where, Path) or "://" not in where:
        return _file(Path(where), create=create)
    url = _parse(where)
    if url.get_backend_name() == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise ConfigError("A store must outlive its server: give sqlite:/// a file.")
        return _file(Path(str(url.database)), create=create)
    try:
        from anarchic.server.postgres import Postgres
    except ImportError as error:
        raise ConfigError(
            "A store in PostgreSQL needs psycopg: pip install 'anarchic[postgres]'."
        ) from error
    return Postgres(url)


def _file(path: Path, *, create: bool) -> Database:
    from anarchic.server.sqlite import Sqlite

    if not (create or path.exists()):
        raise ConfigError(f"There is no store {path}: give the path that the server was given.")
    return Sqlite(path)


def _parse(where: str) -> URL:
    scheme, _, rest = where.partition("://")
    if scheme == "postgres":  # as libpq and many hosts spell it
        where = f"postgresql://{rest}"
    try:
        url = make_url(where)
    except ArgumentError as error:
        raise ConfigError(f"Not an address of a store: it begins with {scheme}://.") from error
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError(
            f"A store is a path, sqlite:///path or postgresql://..., not {scheme}://..."
        )
    return url
