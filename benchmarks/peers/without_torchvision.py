"""Import this first where a peer imports torchvision but the workloads do not use it.

Torchvision's compiled part has to be of the same build as torch. Where it is not, as with a CPU
build of torch beside torchvision from the index, importing it fails, and an empty module of the
same name stands in.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any, ClassVar
from unittest.mock import MagicMock


class _Empty(ModuleType):
    """A package in which every name can be found."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder())
