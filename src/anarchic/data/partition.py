"""Partition of the training samples among workers.

A partitioner gives every worker the indices of its samples. No sample belongs to two workers, and
the same seed gives the same parts.
"""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError

Parts = list[NDArray[np.int64]]
"""Worker number -> indices of its training samples, ascending."""


def labels(y: ArrayLike, workers: int, per_worker: int, seed: int) -> Parts:
    """Give each worker samples of exactly ``per_worker`` classes, as in the paper (its p).

    Each class goes to the same number of workers; which ones is drawn at random. Each worker gets
    the same number of samples of each of its classes, as many as the rarest class allows, without
    replacement.
    """
    known, y = np.unique(_checked(y, "labels"), return_inverse=True)
    _check_per_worker(len(known), workers, per_worker)
    rng = np.random.default_rng(seed)
    held = _draw_classes(len(known), workers, per_worker, rng)
    holders = workers * per_worker // len(known)
    share = int(np.bincount(y).min()) // holders
    if share == 0:
        raise ConfigError(
            f"Each class is held by {holders} workers, but the rarest has only "
            f"{np.bincount(y).min()} samples. Take fewer workers or a smaller per_worker."
        )
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(workers)]
    for label in range(len(known)):
        samples = rng.permutation(np.flatnonzero(y == label))[: share * holders]
        who = np.flatnonzero(held[:, label])
        for worker, own in zip(who, samples.reshape(holders, share), strict=True):
            parts[worker].append(own)
    return [np.sort(np.concatenate(part)) for part in parts]


def dirichlet(y: ArrayLike, workers: int, alpha: float, seed: int) -> Parts:
    """Split each class among the workers in proportions drawn from Dirichlet(alpha).

    A small ``alpha`` gives each class to few workers, a large one comes close to ``iid``. All
    samples are used. A worker that the draw leaves without samples gets one from the worker with
    the most, so that every worker can train.
    """
    if not alpha > 0:
        raise ConfigError(f"dirichlet needs alpha > 0, got alpha={alpha}.")
    y = _checked(y, "dirichlet")
    _check_workers(workers, len(y))
    rng = np.random.default_rng(seed)
    owner = np.empty(len(y), np.int64)
    for label in np.unique(y):
        samples = rng.permutation(np.flatnonzero(y == label))
        ends = np.cumsum(rng.dirichlet(np.full(workers, alpha))) * len(samples)
        owner[samples] = np.searchsorted(ends[:-1], np.arange(len(samples)), side="right")
    _fill_empty_workers(owner, workers)
    return _by_owner(owner, workers)


def iid(y: ArrayLike | int, workers: int, seed: int) -> Parts:
    """All samples at random, in equal numbers (to within one); ``y`` may be the sample count."""
    samples = int(y) if isinstance(y, int | np.integer) else len(np.asarray(y))
    _check_workers(workers, samples)
    order = np.random.default_rng(seed).permutation(samples)
    return [np.sort(part) for part in np.array_split(order, workers)]


def by_role(dataset: Dataset) -> Parts:
    """One worker per role of ``dataset``, in the order of ``dataset.roles``."""
    if not dataset.roles:
        raise ConfigError(
            f"{dataset.name} has no roles to partition by. Use labels, dirichlet or iid."
        )
    return _by_owner(dataset.role_train, len(dataset.roles))


def by_partitioner(dataset: Dataset, partitioner: Any) -> Parts:
    """One worker per partition that a partitioner of flwr-datasets makes of the training samples.

    It sees the columns ``label`` and, where there are roles, ``role``: write ``partition_by=
    "label"``. It is copied, so that it can be used again and gives the same parts.
    """
    if getattr(partitioner, "is_dataset_assigned", lambda: False)():
        raise ConfigError(
            f"{type(partitioner).__name__} has rows of its own already: use "
            "Dataset.of(partitioner, ...) and by_role, or a new partitioner."
        )
    columns: dict[str, Any] = {"row": np.arange(len(dataset.y_train))}
    if dataset.y_train.ndim == 1:
        columns["label"] = np.asarray(dataset.y_train)
    if dataset.roles:
        columns["role"] = np.array(dataset.roles)[dataset.role_train]
    own = deepcopy(partitioner)
    own.dataset = import_module("datasets").Dataset.from_dict(columns)
    parts = [own.load_partition(number)["row"] for number in range(own.num_partitions)]
    return [np.sort(np.asarray(part, np.int64)) for part in parts]


def _checked(y: ArrayLike, who: str) -> NDArray[Any]:
    """Labels, one per sample."""
    found = np.asarray(y)
    if found.ndim != 1 or found.dtype.kind not in "iubUS":
        raise ConfigError(
            f"{who} partitions by labels, but the targets are of type {found.dtype} and shape "
            f"{found.shape[1:]} per sample: use iid or by_role."
        )
    return found


def _check_per_worker(classes: int, workers: int, per_worker: int) -> None:
    if workers < 1:
        raise ConfigError(f"A partition needs workers >= 1, got workers={workers}.")
    if 1 <= per_worker <= classes and workers * per_worker % classes == 0:
        return
    able = [str(p) for p in range(1, classes + 1) if workers * p % classes == 0]
    raise ConfigError(
        f"{workers} workers with per_worker={per_worker} of {classes} classes cannot hold each "
        f"class equally often and none twice. With {workers} workers per_worker can be "
        f"{', '.join(able)}."
    )


def _check_workers(workers: int, samples: int) -> None:
    if not 1 <= workers <= samples:
        raise ConfigError(
            f"{samples} samples cannot be split among workers={workers} with at least one each. "
            f"Take 1 to {samples} workers."
        )


def _draw_classes(classes: int, workers: int, per_worker: int, rng: Generator) -> NDArray[np.bool_]:
    """Which worker holds which class, (workers, classes).

    Giving out the classes in turn satisfies the conditions but gives neighbouring classes to the
    same worker. Trades between two workers, each giving a class that the other lacks, keep the
    conditions, and a few rounds of them remove the trace of the start (the curveball algorithm:
    Strona et al., Nature Communications 5, 2014). Nothing is rejected, so this always ends.
    """
    held = np.zeros((workers, classes), bool)
    slots = np.arange(workers * per_worker)
    held[slots // per_worker, slots % classes] = True
    for _ in range(10):
        order = rng.permutation(workers)
        for one, other in order[: workers // 2 * 2].reshape(-1, 2):
            _trade(held, one, other, rng)
    return held[rng.permutation(workers)]


def _trade(held: NDArray[np.bool_], one: int, other: int, rng: Generator) -> None:
    """Share out again, at random, the classes that only one of the two workers holds."""
    differ = np.flatnonzero(held[one] != held[other])
    if len(differ):
        to_one = rng.permutation(held[one, differ])
        held[one, differ], held[other, differ] = to_one, ~to_one


def _fill_empty_workers(owner: NDArray[np.int64], workers: int) -> None:
    counts = np.bincount(owner, minlength=workers)
    for worker in np.flatnonzero(counts == 0):
        largest = int(counts.argmax())
        owner[np.flatnonzero(owner == largest)[0]] = worker
        counts[largest] -= 1
        counts[worker] += 1


def _by_owner(owner: NDArray[np.int64], workers: int) -> Parts:
    """The samples of each owner; a stable sort keeps them ascending."""
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=workers))
    return np.split(order, ends[:-1])
