"""One visit around somebody else's training: pull into the model, push what has changed.

Every bridge to a library stands on this: it says how to read and write a model's tensors by name,
as NumPy arrays, and knows nothing of servers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from anarchic import wire
from anarchic.core.checking import MOST
from anarchic.core.reading import printable
from anarchic.core.types import EMPTY, Layout, Snapshot, Vector
from anarchic.core.validation import did_you_mean
from anarchic.errors import ConfigError, Diverged, WorkerError
from anarchic.worker.log import log_event

if TYPE_CHECKING:
    from anarchic.worker import Answer, Worker

Tensors = Mapping[str, NDArray[Any]]
OUT_OF_DATE = ("stale", "unknown_version")  # the next update is taken if it starts anew
_UNDER_WAY: WeakSet[Any] = WeakSet()  # workers that are inside a visit
_TOLD: WeakSet[Any] = WeakSet()  # workers that were told about a loss that is not finite


class Visit:
    """Pull into a model on entering the block; push what has changed on leaving it.

    ``read`` returns the model's tensors by name, ``write`` sets them from read-only arrays, which
    it must copy. An exception inside the block pushes nothing. What is sent:

        direction = x_start - x_end,  local_steps = 1,  local_lr = 1

    so that a server step of eta = 1 moves by the mean displacement under every rule, whatever the
    training did between. With ``lr``, the rate of ``steps`` local steps, it is what the paper's
    workers send, direction = (x_start - x_end) / (steps * lr): AFA-CD and AFA-CS then move by one
    ``steps``-th of the displacement. Of tensors that the server's model names as buffers the
    values at the end are sent instead, which the server averages.

    While the server cannot be reached, a visit waits for it, and keeps what was trained, unless
    ``Connection(retry=...)`` sets a limit.

    Set ``samples``, ``loss`` and ``steps`` inside the block. Afterwards ``answer`` is the server's,
    or None if nothing was pushed, since nothing changed, or the update was too old for the server.
    """

    _entered = False

    def __init__(
        self,
        worker: Worker,
        read: Callable[[], Tensors],
        write: Callable[[Tensors], None],
        *,
        lr: float | None = None,
    ) -> None:
        if lr is not None and not 0 < lr < float("inf"):
            raise ConfigError(f"A visit needs a local rate lr > 0, or None, got lr={lr}.")
        self.worker, self.lr = worker, lr
        self._read, self._write = read, write
        self.steps: int | None = None  # K; None: not known
        self.samples = 0  # that the worker holds, n_i
        self.loss: float | None = None
        self.answer: Answer | None = None
        self._snapshot: Snapshot | None = None
        self._start: Vector | None = None

    @property
    def version(self) -> int:
        """The version that was pulled."""
        if self._snapshot is None:
            raise ConfigError("This visit has pulled nothing yet: use it in a with statement.")
        return self._snapshot.version

    def __setattr__(self, name: str, value: object) -> None:
        if self._entered and not (name.startswith("_") or hasattr(type(self), name)):
            known = [each for each in vars(self) if not each.startswith("_")]
            if name not in known:
                raise ConfigError(f"A visit has no {name!r} to set.{did_you_mean(name, known)}")
        if name == "samples":
            value = _checked_samples(value)
        super().__setattr__(name, value)

    @property
    def _owner(self) -> Any:
        """The worker itself, which processes of DDP share."""
        return getattr(self.worker, "shares", self.worker)

    def __enter__(self) -> Self:
        if self._owner in _UNDER_WAY:
            raise ConfigError(
                "This worker is inside a visit already, and both would push the same change: end "
                "the first block before the next, or use one worker for each."
            )
        _UNDER_WAY.add(self._owner)
        self._entered = True
        try:
            self._begin()
        except BaseException:
            self.release()
            raise
        return self

    def _begin(self) -> None:
        self.answer = None
        self._snapshot = self.worker.pull(own=True, retry=self.worker.connection.visit_retry)
        layout = self.worker.layout
        self._check(layout)  # before the model is changed
        self._write(layout.split(self._snapshot.params))
        self._start = layout.join(self._read())  # as the model holds it: its dtype may be narrower

    def release(self) -> None:
        """Allow another visit on the worker."""
        _UNDER_WAY.discard(self._owner)

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.release()
        if kind is None:
            self._push()

    def _check(self, layout: Layout) -> None:
        """Refuse a model that is not the server's."""
        check_fit(layout, self._read())

    def _push(self) -> None:
        layout, start, snapshot = self.worker.layout, self._start, self._snapshot
        assert start is not None
        assert snapshot is not None
        end = layout.join(self._read())
        if not np.isfinite(end).all():
            raise Diverged(
                "The model holds NaN or infinity after training, so nothing was sent: lower the "
                "learning rate, or clip the gradients."
            )
        if not (start != end).any():
            remedy = "Nothing was pushed. Train the model that the visit was given."
            log_event("nothing_changed", logging.WARNING, worker=self.worker.name, remedy=remedy)
            return
        steps, lr = self._steps_and_rate()
        direction = (start - end) / (steps * lr)
        for name in layout.buffers:
            direction[layout.slices[name]] = end[layout.slices[name]]
        self._send(direction.astype(snapshot.params.dtype, copy=False), steps, lr, snapshot.version)

    def _send(self, direction: Vector, steps: int, lr: float, version: int) -> None:
        loss = self._finite_loss()
        try:
            self.answer = self.worker.push(
                direction,
                base_version=version,
                local_steps=steps,
                local_lr=lr,
                samples=int(self.samples),
                loss=loss,
                local_state=self._local_state(),
                retry=self.worker.connection.visit_retry,
            )
        except WorkerError as error:
            if error.code not in OUT_OF_DATE:
                raise
            log_event("push", logging.WARNING, status=error.code, base_version=version)
            return
        except KeyboardInterrupt:
            status = "lost" if self.worker.spool is None else "spooled"
            log_event("push", logging.WARNING, status=status, base_version=version)
            raise
        log_event(
            "push",
            worker=self.worker.name,
            status=self.answer.status,
            version=self.answer.version,
            base_version=version,
            local_steps=self.steps,
            loss=loss,
        )

    def _finite_loss(self) -> float | None:
        try:
            loss = None if self.loss is None else float(self.loss)
        except (TypeError, ValueError, RuntimeError):  # training is not thrown away for it
            remedy = "It is not sent. Set visit.loss to one number, such as loss.item()."
            told = printable(repr(self.loss), most=60)
            log_event(
                "loss_no_number", logging.WARNING, worker=self.worker.name, loss=told, remedy=remedy
            )
            return None
        if loss is None or isfinite(loss):
            return loss
        if self._owner not in _TOLD:
            _TOLD.add(self._owner)
            remedy = "It is not sent. Look at the data and the learning rate. This is said once."
            log_event(
                "loss_not_finite",
                logging.WARNING,
                worker=self.worker.name,
                loss=str(loss),
                remedy=remedy,
            )
        return None

    def _local_state(self) -> Mapping[str, Vector]:
        """What the worker keeps for its next visit, once the server has accepted the update."""
        return EMPTY

    def _steps_and_rate(self) -> tuple[int, float]:
        """K and eta_L of the update."""
        return (1, 1.0) if self.lr is None else (self._counted(), self.lr)

    def _counted(self) -> int:
        if self.steps is None or self.steps < 1:
            raise ConfigError(
                f"With a rate lr={self.lr} a visit needs the number of its local steps: set "
                f"visit.steps to 1 or more inside the block, got {self.steps}."
            )
        return int(self.steps)


def _checked_samples(value: Any) -> int:
    """How many samples a worker holds, as a whole number."""
    try:
        whole = int(value)
        if whole == value and 0 <= whole <= MOST:
            return whole
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise ConfigError(
        f"visit.samples is the number of samples that the worker holds, a whole number from 0 to "
        f"{MOST}, got {printable(repr(value), most=60)}."
    )


def write_first_model(
    path: Path | str, tensors: Tensors, *, buffers: Iterable[str] = (), local: Iterable[str] = ()
) -> Layout:
    """Write these tensors to a new file, for ``anarchic serve --init``; a server has float32.

    Those that ``buffers`` names are averaged and not trained. The file tells which others are not
    in it since each worker keeps its own (``local``).
    """
    path, kept = Path(path), tuple(local)
    if path.exists():
        raise ConfigError(f"{path} exists already: remove it, or write to another file.")
    if not path.parent.is_dir():
        raise ConfigError(f"There is no directory {path.parent} to write {path.name} to.")
    arrays = {name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()}
    layout = Layout.of({name: (each.shape, "F32") for name, each in arrays.items()}, buffers)
    metadata = wire.buffers_metadata("local", kept) if kept else {}
    wire.save_model(path, layout, layout.join(arrays), **metadata)
    return layout


def check_fit(layout: Layout, tensors: Tensors) -> None:
    """Refuse a model that is not the server's, naming the tensors in which they differ."""
    here = {name: tuple(np.shape(tensor)) for name, tensor in tensors.items()}
    there = dict(zip(layout.names, layout.shapes, strict=True))
    if here == there:
        return
    differ = [
        f"{printable(name, most=60)} ({_shape(here, name)} here, {_shape(there, name)} there)"
        for name in sorted({*here, *there})
        if here.get(name) != there.get(name)
    ]
    more = f" and {len(differ) - 4} more" if len(differ) > 4 else ""
    raise ConfigError(
        f"The server trains another model than this one: they differ in {', '.join(differ[:4])}"
        f"{more}. Train the server's model, or start a server with this one."
    )


def _shape(shapes: Mapping[str, tuple[int, ...]], name: str) -> str:
    return str(list(shapes[name])) if name in shapes else "none"
