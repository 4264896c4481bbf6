"""What every loader returns, and the loaders by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any, Literal, get_type_hints

import numpy as np
from numpy.typing import NDArray

from anarchic.core import registry
from anarchic.core.options import says_options
from anarchic.core.validation import check_kind, did_you_mean
from anarchic.data.checks import check_samples
from anarchic.errors import ConfigError, DataError

Array = NDArray[Any]
Integers = NDArray[np.int64]
Folder = str | os.PathLike[str] | None


@dataclass(frozen=True, eq=False)  # compared by identity: its arrays are large
class Dataset:
    """Training and test samples, ready for a model; ``Dataset.of`` makes one of what you have.

    ``x_*`` are float32 inputs, already normalised, or integer tokens. ``y_*`` are int64 labels from
    0 on where there are ``classes``. Without classes (None) they are what the loss takes: floats,
    vectors, or sequences of labels. A validation part is optional.
    A data set with natural owners (the roles of a play) has ``roles``, and in ``role_train`` the
    role of each training sample; ``role_test`` has that of each test sample where it is known, -1
    for a role without training samples.
    An ``np.memmap`` stays on disk: only the samples of a batch are read, when they are needed.
    """

    name: str
    x_train: Array  # (samples, ...)
    y_train: Array  # (samples,), or (samples, ...) without classes or for sequences
    x_test: Array
    y_test: Array
    classes: int | None
    roles: tuple[str, ...] = ()
    role_train: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    augment: Literal["none", "crop-flip"] = "none"  # what training does to an image by default
    x_val: Array | None = None
    y_val: Array | None = None
    role_test: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    def __repr__(self) -> str:
        """Its sizes: arrays of millions of numbers help nobody."""
        counts = [(self.y_train, "training"), (self.y_val, "validation"), (self.y_test, "test")]
        sizes = ", ".join(f"{len(y):,} {part}" for y, part in counts if y is not None)
        kinds = "no classes" if self.classes is None else f"{self.classes} classes"
        roles = f", {len(self.roles):,} roles" if self.roles else ""
        shape = f"inputs {self.x_train.shape[1:]} {self.x_train.dtype}"
        return f"<Dataset {self.name}: {sizes} samples, {shape}, {kinds}{roles}>"

    def __post_init__(self) -> None:
        if self.classes is not None and self.classes < 1:
            raise DataError(f"{self.name}: there must be classes, or None; got {self.classes}.")
        parts = {"training": (self.x_train, self.y_train), "test": (self.x_test, self.y_test)}
        if self.x_val is not None and self.y_val is not None:
            parts["validation"] = self.x_val, self.y_val
        elif self.x_val is not None or self.y_val is not None:
            raise DataError(f"{self.name}: give both x_val and y_val, or neither.")
        for part, (x, y) in parts.items():
            if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
                raise DataError(
                    f"{self.name}: the {part} samples are of type {type(x).__name__} and "
                    f"{type(y).__name__}, not NumPy arrays: use Dataset.of, which takes others."
                )
            check_samples(f"{self.name}: the {part}", x, y, self.classes)
            if x.shape[1:] != self.x_train.shape[1:]:
                raise DataError(
                    f"{self.name}: a {part} input has shape {x.shape[1:]}, a training input "
                    f"{self.x_train.shape[1:]}: give all inputs the same shape."
                )
        for known, owned in ((self.role_train, self.y_train), (self.role_test, self.y_test)):
            if len(known) not in (0, len(owned)):
                raise DataError(
                    f"{self.name}: {len(known)} samples have a role, but there are {len(owned)}: "
                    "give one role for every sample."
                )

    @property
    def on_disk(self) -> bool:
        """Whether some of the inputs are memory-mapped, so that they may be larger than memory."""
        return any(isinstance(x, np.memmap) for x in (self.x_train, self.x_test, self.x_val))

    def need_classes(self, who: str) -> int:
        """The number of classes; an error that says ``who`` needs them where there are none."""
        if self.classes is None:
            raise ConfigError(
                f"{who} needs classes, but the targets of {self.name} are no labels (type "
                f"{self.y_train.dtype}, shape {self.y_train.shape[1:]} per sample): use TorchTask "
                "with a module and a loss for such targets."
            )
        return self.classes

    @staticmethod
    @says_options
    def of(
        source: Any,
        y: Any = None,
        *,
        test: Any = None,
        val: Any = None,
        features: str | Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
        owner: Any = None,
        classes: int | None = None,
        name: str = "mine",
        seed: int = 0,
        augment: Literal["none", "crop-flip"] = "none",
    ) -> Dataset:
        """A data set of what you have: ``Dataset.of(x, y)``, ``Dataset.of(frame, target="price")``.

        ``source`` is an array or tensor of inputs with the targets ``y``, a torch ``Dataset`` or
        ``DataLoader``, a pandas or Polars frame, a Hugging Face ``Dataset`` or ``DatasetDict``, a
        partitioner of flwr-datasets, or a list of (input, target).
        ``test`` and ``val`` are a share, drawn with ``seed``, or samples of their own: (x, y) or
        another source. Without ``test``, the source's own test part is used, or else a fifth.
        ``features`` and ``target`` are columns. ``owner`` is the column, or an array, that says
        whose a sample is: its values become ``roles``.
        ``classes`` is found from labels, where these are whole numbers or texts, one per sample.

        >>> data = Dataset.of(np.ones((10, 3)), np.arange(10) % 2)
        >>> data.x_train.shape, data.x_test.shape, data.classes
        ((8, 3), (2, 3), 2)
        """
        from anarchic.data.frames import Columns
        from anarchic.data.sources import dataset_of

        columns = Columns(features, target, owner if isinstance(owner, str) else None)
        owners = None if isinstance(owner, str) else owner
        about = {"name": name, "classes": classes, "augment": augment}
        return dataset_of((source, y, owners), (test, val, seed), columns, about)


def load(name: str, data_dir: Folder = None, **options: object) -> Dataset:
    """Load a data set by name, or by the ``module:name`` of a loader, with its loader's options.

    A loader is a function of its options and, if it reads files, of ``data_dir``.

    >>> load("digits").x_train.shape
    (1437, 1, 8, 8)
    """
    check_options(name, options)
    loader = registry.find("datasets", name)
    where = {"data_dir": data_dir} if "data_dir" in signature(loader).parameters else {}
    data: Dataset = loader(**where, **options)
    return data


def check_options(name: str, options: Mapping[str, object]) -> None:
    """Refuse a data set that nobody knows, and options that it does not have or cannot read."""
    loader = registry.find("datasets", name)
    hints = get_type_hints(loader)
    known = [option for option in signature(loader).parameters if option != "data_dir"]
    for option, value in options.items():
        if option not in known:
            raise ConfigError(
                f"{name} has no option {option!r}.{did_you_mean(option, known)} Its options: "
                f"{', '.join(known) or 'none'}."
            )
        check_kind(f"{option} of {name}", value, hints.get(option))
    for option in known:
        needed = signature(loader).parameters[option]
        by_name = needed.kind is Parameter.KEYWORD_ONLY and needed.default is Parameter.empty
        if by_name and option not in options:
            raise ConfigError(
                f"{name} needs the option {option}: give --data-option {option}=VALUE, in Settings "
                f"data_options={{'{option}': ...}}."
            )
