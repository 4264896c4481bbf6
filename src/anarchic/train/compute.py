"""How a run is computed: where, how exactly and on how many threads. What it learns is not here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from anarchic.core.options import says_options
from anarchic.core.validation import check_choice, check_kinds
from anarchic.errors import ConfigError, RunError
from anarchic.kernels.switches import expected_folds, fold_threads, torch_threads
from anarchic.train.backends import Batched, Loop
from anarchic.train.task import Backend

Precision = Literal["ieee", "tf32", "bf16"]


def _on_ray() -> Backend:
    from anarchic.train.on_ray import shared

    return shared()


BACKENDS: dict[str, Callable[[], Backend]] = {"loop": Loop, "batched": Batched, "ray": _on_ray}
CLASSES = {"loop": "Loop", "batched": "Batched", "ray": "OnRay"}  # by which runs are recorded
PRECISIONS = get_args(Precision)


@says_options
@dataclass(frozen=True, kw_only=True)
class Compute:
    """How a run is computed; None leaves the choice to the task.

    ``device`` is ``cpu``, ``cuda`` or ``cuda:N``. ``precision`` is that of matrix products on a
    GPU. ``threads`` train and fold updates. ``graphs`` lets a GPU replay its local steps from a
    recording. ``compiled`` uses loops compiled by Numba, where there are any (None: in a long run).
    ``lookahead`` is how many updates ahead may be computed with those that are due.
    """

    device: str = "cpu"
    precision: Precision = "ieee"
    threads: int | None = None
    backend: str = "batched"
    graphs: bool | None = None
    compiled: bool | None = None
    lookahead: int = 16

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads must be at least 1, got {self.threads}.")
        check_choice("backend", self.backend, BACKENDS)
        check_choice("precision", self.precision, PRECISIONS)
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise ConfigError(f"There is no device {self.device!r}; there are cpu, cuda, cuda:N.")
        if self.precision != "ieee" and self.device == "cpu":
            raise ConfigError(
                f"precision={self.precision!r} is for a GPU, got device={self.device!r}: leave it "
                "out, or set device=cuda."
            )
        if self.graphs and self.device == "cpu":
            raise ConfigError("graphs are recorded on a GPU: leave it out, or set device=cuda.")
        check_lookahead(self.lookahead)

    @property
    def device_type(self) -> str:
        """The kind of device, whatever its number."""
        return self.device.partition(":")[0]

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Compute:
        """That of a recorded run, from its settings as ``RunDirectory.settings`` reads them."""
        values = record.get("compute", {})
        if strange := sorted(values.keys() - {f.name for f in fields(Compute)}):
            raise RunError(
                f"The run was not computed by this version ({', '.join(strange)}): resume it with "
                "the program that started it."
            )
        return Compute(**values)


def check_lookahead(lookahead: int) -> None:
    """Refuse a number of updates ahead with which nothing could be computed."""
    if lookahead < 1:
        raise ConfigError(f"lookahead must be at least 1 update, got {lookahead}.")


@contextmanager
def computing(threads: int | None, folded: int = 0) -> Iterator[None]:
    """Set the process up to compute a run; at the end all switches are as they were before.

    ``threads`` is for torch, if it is loaded, and for folds; None leaves both as they are.
    ``folded`` is how many numbers will be folded.
    """
    for_folds = nullcontext() if threads is None else fold_threads(threads)
    with expected_folds(folded), torch_threads(threads), for_folds:
        yield
