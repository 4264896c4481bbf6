"""The experiments by name: folders with a ``run.py`` that makes a ``STUDY``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from anarchic.errors import ConfigError
from anarchic.study.study import Study

PACKAGE = Path(__file__).parents[1]


def folder() -> Path:
    """Where the experiments are: in the installed package, or beside ``src`` in a clone."""
    candidates = (PACKAGE / "experiments", PACKAGE.parents[1] / "experiments")
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise ConfigError(f"There are no experiments in {candidates[0]} or {candidates[1]}.")


def names() -> list[str]:
    return sorted(path.parent.name for path in folder().glob("*/run.py"))


def load(name: str) -> Study:
    """The experiment of that name."""
    if name not in names():
        raise ConfigError(f"There is no experiment {name!r}; there are {', '.join(names())}.")
    return _study(folder() / name / "run.py")


def sibling(run: str, name: str) -> Study:
    """The experiment ``name`` in the folder beside that of this ``run.py``."""
    return _study(Path(run).parents[1] / name / "run.py")


def beside(run: str, name: str) -> ModuleType:
    """The module ``name.py`` in the folder of this ``run.py``."""
    return _module(Path(run).with_name(f"{name}.py"))


def _study(path: Path) -> Study:
    study = getattr(_module(path), "STUDY", None)
    if not isinstance(study, Study):
        raise ConfigError(
            f"{path} makes no STUDY, found {study!r}: end it with STUDY = Study(...), as "
            "experiments/README.md shows."
        )
    return study


def _module(path: Path) -> ModuleType:
    name = f"experiment_{path.parent.name}_{path.stem}".replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
