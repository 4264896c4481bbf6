"""FEMNIST and Shakespeare in LEAF's JSON, one user per worker.

LEAF's scripts write files ``{"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}`` into
the folders ``train`` and ``test`` (Caldas et al., "LEAF: A Benchmark for Federated Settings",
arXiv:1812.01097).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.core.reading import reason
from anarchic.data.dataset import Dataset, Folder
from anarchic.data.files import damaged, read, roots
from anarchic.data.shakespeare import ALPHABET, WINDOW, letters
from anarchic.errors import ConfigError, DataError

Array = NDArray[Any]
Convert = Callable[[Any, Any], tuple[Array, Array]]  # x and y of one user


def load_femnist(
    data_dir: Folder = None, *, path: str | None = None, users: int | None = None, seed: int = 0
) -> Dataset:
    """Handwritten characters by writer: 1x28x28, 62 classes, as LEAF gives them (1 is white).

    ``users`` of them are drawn with ``seed``; None takes all. ``path`` is the folder that holds
    ``train`` and ``test``, if it is not ``femnist`` in the data folder.
    """
    return _load("femnist", 62, _characters, _folder("femnist", data_dir, path), users, seed)


def load_leaf_shakespeare(
    data_dir: Folder = None, *, path: str | None = None, users: int | None = None, seed: int = 0
) -> Dataset:
    """The next character of a role of Shakespeare's, from the 80 before it, as LEAF cut them.

    ``shakespeare`` makes the same from the text itself. The options are those of ``femnist``.
    """
    name = "leaf-shakespeare"
    return _load(name, len(ALPHABET), _lines, _folder(name, data_dir, path), users, seed)


def locate_leaf(name: str, data_dir: Folder = None) -> Path | None:
    """The folder with LEAF's files of that data set, if there is one."""
    places = [root / name / inside for root in roots(data_dir) for inside in ("", "data")]
    return next((place for place in places if _files(place, "train")), None)


def _folder(name: str, data_dir: Folder, path: str | None) -> Path:
    if path is not None:
        given = Path(path).expanduser()
        found = next((p for p in (given, given / "data") if _files(p, "train")), None)
    else:
        given, found = roots(data_dir)[0] / name, locate_leaf(name, data_dir)
    if found is None:
        raise DataError(
            f"There are no files of LEAF for {name}: expected {given / 'train'}/*.json and "
            f"{given / 'test'}/*.json. Make them with LEAF's preprocess.sh, and name their folder "
            "with the option path."
        )
    return found


def _load(
    name: str, classes: int, convert: Convert, folder: Path, users: int | None, seed: int
) -> Dataset:
    train = dict(_users(folder, "train", convert))
    chosen = sorted(user for user, (_, y) in train.items() if len(y))
    if users is not None:
        if not 1 <= users <= len(chosen):
            raise ConfigError(f"{name} has {len(chosen)} users in {folder}, got users={users}.")
        drawn = np.random.default_rng(seed).choice(len(chosen), users, replace=False)
        chosen = [chosen[number] for number in sorted(drawn)]
    held = dict(_users(folder, "test", convert))
    # LEAF splits the samples of each user, or else the users: then all test users count.
    shared = [user for user in chosen if user in held]
    tested = shared or sorted(held)
    number = {user: place for place, user in enumerate(chosen)}
    if not tested:
        raise DataError(f"{folder / 'test'} has no files of LEAF: make them with -t sample.")
    return Dataset(
        name,
        *_joined([train[user] for user in chosen]),
        *_joined([held[user] for user in tested]),
        classes=classes,
        roles=tuple(chosen),
        role_train=np.repeat(np.arange(len(chosen)), [len(train[user][1]) for user in chosen]),
        role_test=np.repeat(
            [number.get(user, -1) for user in tested], [len(held[user][1]) for user in tested]
        ),
    )


def _users(folder: Path, part: str, convert: Convert) -> Iterator[tuple[str, tuple[Array, Array]]]:
    for path in _files(folder, part):
        try:
            found = json.loads(read(path))["user_data"]
            for user, samples in found.items():
                yield user, convert(samples["x"], samples["y"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise damaged(path, f"it is not LEAF's JSON ({reason(error)})") from error


def _files(folder: Path, part: str) -> list[Path]:
    names = ("*.json", "*.json.gz", "*.json.xz")
    return sorted(path for pattern in names for path in (folder / part).glob(pattern))


def _characters(x: Any, y: Any) -> tuple[Array, Array]:
    return np.array(x, np.float32).reshape(-1, 1, 28, 28), np.array(y, np.int64)


def _lines(x: Any, y: Any) -> tuple[Array, Array]:
    tokens = letters("".join(x)).reshape(-1, WINDOW)
    following = letters("".join(y)).astype(np.int64)
    if not len(tokens) == len(following) == len(x):
        raise ValueError(f"its samples are not {WINDOW} characters and the next")
    return tokens, following


def _joined(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    x, y = zip(*parts, strict=True)
    return np.concatenate(x), np.concatenate(y)
