"""A validation part for a data set that has none, taken from its training samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anarchic.data.dataset import Dataset, Integers
from anarchic.errors import ConfigError

SEED = 0  # of the draw: all runs set the same samples aside, whatever their own seed


def set_aside(data: Dataset, share: float) -> Dataset:
    """The same data set with a share of its training samples for validation.

    Of roles each keeps at least one sample. The samples are always the same ones.
    """
    if not 0 < share < 1:
        raise ConfigError(f"val_share is above 0 and below 1, got {share}.")
    if data.x_val is not None:
        raise ConfigError(
            f"{data.name} has {len(data.x_val):,} validation samples of its own: leave val_share "
            "out."
        )
    if data.on_disk:
        raise ConfigError(
            f"The inputs of {data.name} are on disk and are not copied: give it validation samples "
            "of its own, and leave val_share out."
        )
    aside = _drawn(data, share)
    kept = np.setdiff1d(np.arange(len(data.y_train)), aside)
    if not len(aside):
        raise ConfigError(
            f"val_share={share} of {len(data.y_train)} training samples is no sample: give more."
        )
    return replace(
        data,
        x_train=data.x_train[kept],
        y_train=data.y_train[kept],
        x_val=data.x_train[aside],
        y_val=data.y_train[aside],
        role_train=data.role_train[kept] if len(data.role_train) else data.role_train,
    )


def _drawn(data: Dataset, share: float) -> Integers:
    """The samples for validation, in order; the same share of each role."""
    rng = np.random.default_rng(SEED)
    roles = data.role_train if len(data.role_train) else np.zeros(len(data.y_train), np.int64)
    order = rng.permutation(len(roles))
    order = order[np.argsort(roles[order], kind="stable")]  # role by role, each shuffled
    counts = np.bincount(roles)
    first = np.cumsum(counts) - counts
    place = np.arange(len(roles)) - first[roles[order]]
    return np.sort(order[place < np.floor(share * counts)[roles[order]]])
