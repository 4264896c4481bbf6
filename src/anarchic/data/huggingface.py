"""A data set of the Hugging Face Hub, or one in a folder of the same form."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from anarchic.core.reading import reason
from anarchic.data.csv_file import listed
from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError, DataError


def load_huggingface(
    *,
    path: str,
    target: str | None = None,
    features: str | None = None,
    owner: str | None = None,
    subset: str | None = None,
    revision: str | None = None,
    test: float | None = None,
    val: float | None = None,
    classes: int | None = None,
    seed: int = 0,
) -> Dataset:
    """A data set by its name on the Hugging Face Hub, or a folder; needs ``datasets``.

    A folder holds CSV, JSON or Parquet files, or what ``save_to_disk`` wrote. Its splits
    ``train``, ``test`` and ``validation`` are used; ``test`` and ``val`` are shares of ``train``
    instead. Without a test split a fifth is drawn. Columns are given as for ``csv``.
    """
    return Dataset.of(
        _loaded(path, subset, revision),
        test=test,
        val=val,
        features=listed(features),
        target=listed(target),
        owner=owner,
        classes=classes,
        name=Path(path).name,
        seed=seed,
    )


def _loaded(path: str, subset: str | None, revision: str | None) -> Any:
    try:
        library = import_module("datasets")
    except ModuleNotFoundError as error:
        raise ConfigError("huggingface needs its library: pip install datasets.") from error
    folder = Path(path).expanduser()
    saved = any((folder / name).exists() for name in ("dataset_info.json", "dataset_dict.json"))
    try:
        if saved:
            return library.load_from_disk(str(folder))
        place = str(folder) if folder.is_dir() else path
        return library.load_dataset(place, subset, revision=revision)
    except (OSError, ValueError, RuntimeError) as error:  # its own errors are among these
        raise DataError(
            f"{path} could not be loaded from Hugging Face ({reason(error)}): check its name, the "
            "subset and the network, or give path=FOLDER with its files."
        ) from error
