"""The live server of a run. Its names are loaded on first use: most need the web stack."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anarchic.server.backup import backup_store
    from anarchic.server.checkup import check_store
    from anarchic.server.compact import compact_store
    from anarchic.server.exporting import export
    from anarchic.server.migrations import upgrade_store
    from anarchic.server.operate import steer
    from anarchic.server.serve import run
    from anarchic.server.settings import Address, Limits, RuleSettings, RunSettings, ServerSettings
    from anarchic.server.store import open_store

__all__ = [
    "Address",
    "Limits",
    "RuleSettings",
    "RunSettings",
    "ServerSettings",
    "backup_store",
    "check_store",
    "compact_store",
    "export",
    "open_store",
    "run",
    "steer",
    "upgrade_store",
]
_HOME = {
    "backup_store": "backup",
    "check_store": "checkup",
    "compact_store": "compact",
    "export": "exporting",
    "open_store": "store",
    "run": "serve",
    "steer": "operate",
    "upgrade_store": "migrations",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'anarchic.server' has no attribute {name!r}")
    return getattr(import_module(f"anarchic.server.{_HOME.get(name, 'settings')}"), name)
