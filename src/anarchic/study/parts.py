"""What runs are made of besides their settings: data, files and code of others, as digests.

Settings name these. A sweep keeps the digests, so that it is not gone on with after one of them
has changed, and so that sweeps that mean different things by one name are not compared.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from anarchic.core import registry
from anarchic.data import Dataset
from anarchic.errors import RunError
from anarchic.sim.settings import Settings, data_of, data_options
from anarchic.study.grid import said

Parts = Mapping[str, str]  # SHA-256 by what it is of
SOME = 1000  # samples of a part that stays on disk, which may be larger than memory


def parts_of(asked: Iterable[Settings]) -> dict[str, str]:
    """The data, the files and the modules that settings name; data that cannot be read raise."""
    data, files, modules = {}, set(), set()
    for settings in asked:
        data[_data_name(settings)] = settings
        files |= {each for each in (settings.availability, settings.speeds) if each is not None}
        modules |= set(_modules(settings))
    found = {name: _data_digest(data_of(settings)) for name, settings in data.items()}
    found |= {f"the file {n}": d for n in sorted(files) if (d := _file_digest(n))}
    return found | {f"the module {n}": d for n in sorted(modules) if (d := _source_digest(n))}


def check_unchanged(there: Parts, here: Parts, path: Path) -> None:
    """Refuse to go on in ``path`` with other parts than it was begun with."""
    if changed := [name for name in here if there.get(name, here[name]) != here[name]]:
        raise RunError(
            f"Changed since {path} was begun: {', '.join(changed)}. Old results and new ones would "
            "not belong together: put back what it was begun with, or choose another directory."
        )


def check_same_parts(by_place: Mapping[str, Parts]) -> None:
    """Refuse places whose results are of different parts under one name."""
    known: dict[str, tuple[str, str]] = {}  # digest and place, by name
    for place, parts in by_place.items():
        for name, digest in parts.items():
            if (first := known.setdefault(name, (digest, place)))[0] != digest:
                raise RunError(
                    f"In {place}, {name} is not what it was in {first[1]}, so their results do not "
                    "belong together: use them apart, or run one of them anew."
                )


def _data_name(settings: Settings) -> str:
    options = said(data_options(settings)) if data_options(settings) else ""
    share = "" if settings.val_share is None else f"val_share={settings.val_share:g}"
    return " ".join(filter(None, ("the data set", settings.data, options, share)))


def _data_digest(data: Dataset) -> str:
    arrays = (data.x_train, data.y_train, data.x_val, data.y_val, data.x_test, data.y_test)
    found = hashlib.sha256(repr(data.roles).encode())
    for array in (*arrays, data.role_train, data.role_test):
        if array is None:
            continue
        if isinstance(array, np.memmap):
            array = array[:: max(1, len(array) // SOME)]
        found.update(f"{array.shape} {array.dtype}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _modules(settings: Settings) -> Iterator[str]:
    """The modules of others that settings name, by themselves or through an installed package."""
    named = [
        ("rules", settings.rule),
        *(("local_rules", name) for name in registry.chain(settings.local_rule)),
        ("server_steps", settings.server_opt or "sgd"),
        ("participation", settings.participation),
        ("datasets", settings.data),
        ("models", settings.model),
    ]
    specs = [registry.spec(kind, name) for kind, name in named]
    for spec in (*specs, *settings.metrics.values()):
        module = str(spec).partition(":")[0]
        if not module.startswith("anarchic."):
            yield module


def _file_digest(path: str) -> str | None:
    try:
        return _digest(Path(path).read_bytes())
    except OSError:  # the runs that need it fail, and no others
        return None


def _source_digest(module: str) -> str | None:
    """Of its code alone: comments and layout change no result. None where there is no file."""
    try:
        found = find_spec(module)
        source = Path(found.origin).read_bytes() if found and found.origin else None
    except (ImportError, ValueError, OSError):  # what is not there fails when it is run
        return None
    if source is None:
        return None
    try:
        return _digest(ast.unparse(ast.parse(source)).encode())
    except (SyntaxError, ValueError):  # compiled
        return _digest(source)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
