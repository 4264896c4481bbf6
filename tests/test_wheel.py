"""The wheel without extras, beside what it declares to need and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from tests.test_examples import train

pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow  # it builds a wheel
ROOT = Path(__file__).parents[1]


def needed(
    requirements: list[str], extras: frozenset[str], seen: set[str]
) -> Iterator[Distribution]:
    """The distributions that requirements ask for, and all that those ask for."""
    for requirement in map(Requirement, requirements):
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate({"extra": e}) for e in ("", *extras)):
            continue
        if requirement.name not in seen:
            seen.add(requirement.name)
            found = distribution(requirement.name)
            yield found
            yield from needed(found.requires or [], frozenset(requirement.extras), seen)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the contents of our wheel, and links to what it needs."""
    built, site = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (ours,) = Distribution.discover(path=[str(site)])
    for part in needed(ours.requires or [], frozenset(), set()):
        for top in {file.parts[0] for file in part.files or []} - {".."}:
            if top != "__pycache__" and not (site / top).exists():
                (site / top).symlink_to(Path(str(part.locate_file(top))).resolve())
    return site


def python(site: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python without its own site-packages."""
    return subprocess.run(
        [sys.executable, "-S", "-W", "error", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_bare_wheel_has_no_extras(bare: Path, tmp_path: Path) -> None:
    """Or the tests below would show nothing."""
    for name in ("torch", "numba", "starlette", "uvicorn", "sqlalchemy", "matplotlib"):
        done = python(bare, "-c", f"import {name}", folder=tmp_path)
        assert f"No module named '{name}'" in done.stderr


def test_the_files_of_the_live_page_are_in_the_wheel(bare: Path) -> None:
    ours = ROOT / "src" / "anarchic" / "page" / "static"
    there = bare / "anarchic" / "page" / "static"
    assert sorted(f.name for f in there.iterdir()) == sorted(f.name for f in ours.iterdir())


def test_the_bare_wheel_imports_and_its_command_answers(bare: Path, tmp_path: Path) -> None:
    done = python(bare, "-c", "import anarchic; print(anarchic.__file__)", folder=tmp_path)
    assert done.stdout.strip() == str(bare / "anarchic" / "__init__.py"), done.stderr
    done = python(bare, "-m", "anarchic", "--help", folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_numpy_worker_of_the_bare_wheel_trains(bare: Path, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    train([sys.executable, "-S", "-W", "error"], bare, tmp_path)
