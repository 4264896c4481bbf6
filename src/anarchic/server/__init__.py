"""The live server of a run. Its names are loaded on first use: most need the web stack."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anarchic.server.serve import run
    from anarchic.server.settings import Address, Limits, RuleSettings, RunSettings, ServerSettings
    from anarchic.server.store import open_store

__all__ = [
    "Address",
    "Limits",
    "RuleSettings",
    "RunSettings",
    "ServerSettings",
    "open_store",
    "run",
]
_HOME = {"open_store": "store", "run": "serve"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'anarchic.server' has no attribute {name!r}")
    return getattr(import_module(f"anarchic.server.{_HOME.get(name, 'settings')}"), name)
