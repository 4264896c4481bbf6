"""Imports point one way, and importing the package is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.statements import statements

SOURCE = Path(__file__).parents[1] / "src" / "anarchic"

# A room may import itself and the rooms named here; cli sees all.
ALLOWED = {
    "errors": set(),
    "kernels": {"errors"},
    "core": {"errors", "kernels"},
    "wire": {"core", "errors"},
    "participation": {"core", "errors"},
    "data": {"core", "errors"},
    "models": {"core", "data", "errors", "kernels"},
    "train": {"core", "data", "errors", "kernels", "models", "participation"},
    "callbacks": {"core", "errors", "wire"},
    "sim": {"callbacks", "core", "data", "errors", "models", "participation", "train", "wire"},
    "page": {"core", "data", "errors"},
    "server": {"callbacks", "core", "errors", "models", "page", "participation", "wire"},
    "worker": {"core", "data", "errors", "models", "participation", "train", "wire"},
    "bridges": {"core", "errors", "wire", "worker"},
    "torch": {"bridges"},
    "theory": {"core", "data", "errors", "participation", "server", "sim", "train"},
    "report": {
        "core",
        "data",
        "errors",
        "page",
        "participation",
        "server",
        "sim",
        "stats",
        "theory",
        "train",
        "wire",
    },
    "demo": {"core", "data", "errors", "report", "server", "sim", "wire", "worker"},
    "stats": {"errors"},
    "study": {
        "callbacks",
        "core",
        "kernels",
        "data",
        "errors",
        "participation",
        "report",
        "sim",
        "stats",
        "train",
        "wire",
    },
}
# What a GPU host without our other dependencies has.
FOREIGN = {"numpy", "torch", "safetensors"}
PORTABLE = {
    "callbacks",
    "errors",
    "core",
    "kernels",
    "wire",
    "participation",
    "data",
    "models",
    "train",
    "sim",
    "study",
}
HEAVY = (
    "torch",
    "matplotlib",
    "starlette",
    "uvicorn",
    "httpx",
    "sqlalchemy",
    "psycopg",
    "ray",
    "wandb",
    "mlflow",
)


def modules(rooms: set[str]) -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if room_of(path) in rooms)


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


@cache
def parsed(path: Path) -> tuple[list[ast.stmt], list[ast.AST]]:
    """The statements at the top of a file, and its imports anywhere."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = (ast.Import, ast.ImportFrom)
    return tree.body, [node for node in statements(tree) if isinstance(node, imports)]


def imported(path: Path, *, at_top: bool = False) -> set[str]:
    """Dotted names of the modules that a file imports, anywhere or at its top only."""
    body, imports = parsed(path)
    names: set[str] = set()
    for node in body if at_top else imports:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            base = node.module or ""
            names |= (
                {f"{base}.{alias.name}" for alias in node.names} if base == "anarchic" else {base}
            )
    return names


def test_every_room_has_its_place() -> None:
    assert {room_of(path) for path in SOURCE.rglob("*.py")} <= {
        *ALLOWED,
        "cli",
        "__init__",
        "__main__",
    }


def back_arrows(path: Path, room: str) -> list[str]:
    """The imports of a file in a room from rooms that it may not know."""
    rooms = {f"anarchic.{name}" for name in {room, "__version__", *ALLOWED[room]}}
    names = sorted(name for name in imported(path) if name.startswith("anarchic."))
    back = [name for name in names if ".".join(name.split(".")[:2]) not in rooms]
    return [f"{path.name} of {room} imports {name}" for name in back]


def too_much(path: Path, room: str) -> list[str]:
    """What a file imports at its top that a GPU host may not have."""
    known = {*FOREIGN, "anarchic", "__future__", *sys.stdlib_module_names}
    known -= {"torch", "safetensors"} if room == "core" else set()
    names = sorted(imported(path, at_top=True))
    return [f"{path.name} imports {name}" for name in names if name.split(".")[0] not in known]


def test_imports_point_one_way() -> None:
    found = modules(set(ALLOWED))
    assert len(found) > 300
    assert [told for path in found for told in back_arrows(path, room_of(path))] == []


def test_the_simulator_needs_only_numpy_torch_and_safetensors() -> None:
    found = modules(PORTABLE)
    assert len(found) > 150
    assert [told for path in found for told in too_much(path, room_of(path))] == []


def test_nothing_that_only_unix_has_is_needed_to_import() -> None:
    for path in SOURCE.rglob("*.py"):
        assert not imported(path, at_top=True) & {"fcntl", "grp", "pwd", "resource", "termios"}


def test_nobody_but_a_theorem_asks_for_a_certain_rule() -> None:
    rules = SOURCE / "core" / "rules"
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if rules not in path.parents
        and any(name.startswith("anarchic.core.rules") for name in imported(path))
    }
    assert found == {"__init__.py", "theory/report.py"}  # the first lists public names


def callbacks_to_assign(source: str) -> list[str]:
    """Public attributes of objects that wait for a function, as ``self.told: Callable[...]``."""
    return [
        ast.unparse(node.target)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)
        if not node.target.attr.startswith("_") and "Callable" in ast.unparse(node.annotation)
    ]


def test_callbacks_are_given_when_an_object_is_made() -> None:
    for path in SOURCE.rglob("*.py"):
        assert callbacks_to_assign(path.read_text(encoding="utf-8")) == [], path
    assert callbacks_to_assign("self.told: Callable[[], None] = print") == ["self.told"]


# Names of other libraries' classes that several bridges take over.
TAKEN_OVER = {"VisitCallback"}


def test_a_public_class_name_means_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        if "kernels" in path.parts:  # one file there is one form, and read by itself
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(path.name)
    assert {n: p for n, p in found.items() if len(p) > 1 and n not in TAKEN_OVER} == {}


def test_the_layer_test_sees_a_back_arrow(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        "import torch\nfrom anarchic.sim.run import simulate\nimport anarchic.cli\n"
        "from anarchic.errors import ConfigError\nfrom anarchic import core\n"
    )
    names = {"torch", "anarchic.sim.run", "anarchic.cli", "anarchic.errors", "anarchic.core"}
    assert imported(bad) == names
    back = ["bad.py of core imports anarchic.cli", "bad.py of core imports anarchic.sim.run"]
    assert back_arrows(bad, "core") == back
    assert (too_much(bad, "core"), too_much(bad, "train")) == (["bad.py imports torch"], [])


WITHOUT_EXTRAS = """
import importlib, pkgutil
import numpy as np
import anarchic.core
for found in pkgutil.walk_packages(anarchic.core.__path__, "anarchic.core."):
    importlib.import_module(found.name)
from anarchic.core.rules import AfaCd
from anarchic.core.types import Update
rule, large = AfaCd(m=1), np.zeros(5_000_000, np.float32)  # long enough for compiled loops
state = rule.receive(rule.init(large), Update("ann", 0, 1, 0.5, large + 2))
print(state.params[0])
"""


def without(*packages: str) -> str:
    """The first lines of a program that finds none of these packages."""
    return f"""
from importlib.machinery import PathFinder
_find = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None:
    None if name.split(".")[0] in {packages} else _find(name, path, target)
)
"""


def test_core_folds_updates_with_numpy_alone() -> None:
    missing = without("torch", "numba", "llvmlite", "triton", "scipy")
    command = [sys.executable, "-c", missing + WITHOUT_EXTRAS]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.stdout.strip() == "-1.0", shown.stderr


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("anarchic", "anarchic.worker")),
        "anarchic.cli.app",
    ],
)
def test_importing_the_package_loads_nothing_heavy(name: str) -> None:
    code = f"import sys, {name}; print([m for m in {HEAVY} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
