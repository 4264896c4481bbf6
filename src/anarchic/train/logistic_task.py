"""The model ``logistic``, softmax regression, as a task: NumPy alone, by its closed form."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, prod
from typing import Any, Literal, final

import numpy as np

from anarchic.core.types import Floats as Doubles
from anarchic.core.types import Integers, Layout
from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError
from anarchic.kernels import find
from anarchic.models import check, softmax
from anarchic.models.softmax import Floats
from anarchic.train.draws import Draws
from anarchic.train.metrics import Function, Metric, check_metrics, measure
from anarchic.train.per_worker import HeldOut, hold_out, worker_values
from anarchic.train.samples import WorkerSamples, mean_over, resident, sample_numbers
from anarchic.train.task import InNumpy, Picks


@final
class LogisticTask(InNumpy):
    """Softmax regression on a data set divided among workers.

    ``compiled`` lets whole visits of plain SGD be done by a loop of Numba's, if that is installed
    and most inputs have the same value, as in images of digits; it takes a second to load.
    """

    max_lanes = 8  # the arrays of more would not stay in a core's own cache
    threads = 1  # the products are small: threads would wait for each other

    def __init__(
        self,
        data: Dataset,
        parts: Sequence[Integers],
        *,
        dtype: Literal["float32", "float64"] = "float32",
        compiled: bool = True,
        start: Floats | None = None,
        metrics: Mapping[str, Metric | Function | str] | None = None,
        per_worker: bool = False,
    ) -> None:
        check("logistic", data)
        if data.on_disk:
            raise ConfigError(
                f"LogisticTask reads all of {data.name} into memory, but its inputs are on disk: "
                "use make_task('logistic', ...), which takes PyTorch for such data."
            )
        self.metrics = check_metrics(metrics)
        self._aside: HeldOut | None = None
        if per_worker:
            parts, self._aside = hold_out(sample_numbers(parts, len(data.y_train)), data)
        inputs = prod(data.x_train.shape[1:])
        self._classes = data.need_classes("Softmax regression")
        code = {"float32": "F32", "float64": "F64"}[dtype]
        self.layout: Layout = softmax.softmax_layout(inputs, self._classes, code)
        self._start = np.zeros(self.layout.dim, dtype) if start is None else start.astype(dtype)
        self._held = WorkerSamples.of(parts, len(data.y_train))
        self._dataset = data  # as long as it is in use, other tasks find its forms and share them
        self._data = resident(data, ("numpy", dtype), lambda: _InDtype.of(data, dtype))
        sparse = self._data.sparse if compiled else None
        self._sparse = sparse if sparse is not None and sparse.suits(self._classes) else None

    @property
    def samples(self) -> Integers:
        return self._held.counts

    @property
    def batch_key(self) -> Hashable:
        return self._data, self.layout, self._sparse is None

    def joined(self, others: Sequence[LogisticTask]) -> LogisticTask:
        joint = copy(self)
        joint._held = self._held.joined([other._held for other in others])
        return joint

    def on_data(self, data: Dataset, parts: Sequence[Integers]) -> LogisticTask:
        """The same model on other data."""
        return LogisticTask(data, parts, compiled=False)

    def digest(self) -> str:
        return self.digest_on("cpu", "ieee")

    def digest_on(self, device: str, precision: str) -> str:
        index, held, how = self._held.index, self._held, f"False {device} {precision}"
        return held.digest(how, self._data.y[index], self._data.x[index[held.some]])

    def init(self) -> Floats:
        return self._start.copy()

    def pick(self, draws: Draws, batch: int) -> Picks:
        draws = replace(draws, fast=self._sparse is not None)
        return {"sample": self._held.index[self._held.pick(draws, batch, np.asarray)]}

    def gradient(self, params: Floats, worker: int, picks: Picks) -> Floats:
        x, y = self._batch(picks["sample"])
        return softmax.gradient_and_loss(self.layout, params, x, y)[0]

    def exact_gradient(self, params: Floats, worker: int) -> Floats:
        found: Floats = mean_over(
            self._held.pieces(worker), lambda own: self.gradient(params, worker, {"sample": own})
        )
        return found

    def lane_gradients(self, params: Floats, workers: Integers, picks: Picks) -> Floats:
        x, y = self._batch(picks["sample"])
        found: Floats = softmax.lane_gradients(params, x, y, self._classes)
        return found

    def _batch(self, sample: Integers) -> tuple[Floats, Integers]:
        x = self._data.x.take(sample.reshape(-1), 0)
        return x.reshape(*sample.shape, -1), self._data.y.take(sample)

    @property
    def lane_visits(self) -> Callable[[Floats, Floats, Integers, Picks], Floats] | None:
        """The mean gradients of whole visits of plain SGD, where there is a loop for them."""
        if self._sparse is None:
            return None
        visits = self._sparse.visits
        return lambda start, rates, steps, picks: visits(start, rates, steps, picks["sample"])

    def evaluate_all(self, params: Sequence[Floats]) -> list[dict[str, float]]:
        if not params:
            return []
        data, vectors = self._data, np.stack(params)
        tests = self._judged(vectors, data.x_test, data.y_test)
        if data.x_val is None or data.y_val is None:
            return tests
        others = self._judged(vectors, data.x_val, data.y_val)
        return [
            {**test, **{f"val_{name}": value for name, value in val.items()}}
            for test, val in zip(tests, others, strict=True)
        ]

    def _judged(self, vectors: Floats, x: Floats, y: Integers) -> list[dict[str, float]]:
        found = softmax.lane_metrics(vectors, x, y, self._classes)
        for each, vector in zip(found, vectors, strict=True):
            if self.metrics and isfinite(each["loss"]):  # otherwise the run has diverged
                each |= measure(self.metrics, self._outputs(vector, x), y)
        return found

    def evaluate(self, params: Floats) -> dict[str, float]:
        return self.evaluate_all([params])[0]

    @property
    def worker_names(self) -> tuple[str, ...]:
        """Those of their roles; none where workers have no names or set nothing aside."""
        return self._aside.names if self._aside is not None else ()

    def judged_by(self, metrics: Mapping[str, Metric]) -> LogisticTask:
        """The same task with other metrics."""
        judged = copy(self)
        judged.metrics = dict(metrics)
        return judged

    @property
    def test_samples(self) -> int:
        return len(self._data.y_test)

    def tested_on(self, samples: Integers) -> LogisticTask:
        """The same task with only these of the test samples."""
        some, data = copy(self), self._data
        some._data = replace(data, x_test=data.x_test[samples], y_test=data.y_test[samples])
        return some

    def evaluate_workers(self, params: Floats) -> tuple[str, Doubles] | None:
        """The accuracy of every worker on what it set aside; None where nobody did."""
        if self._aside is None:
            return None
        x, y = self._batch(self._aside.index)
        return worker_values(self._aside, self._outputs(params, x), y, _no_loss)

    def _outputs(self, params: Floats, x: Floats) -> Floats:
        model = self.layout.split(params)
        found: Floats = x.reshape(len(x), -1) @ model["weight"].T + model["bias"]
        return found


def _no_loss(outputs: Floats, targets: Integers) -> float:
    raise AssertionError("softmax regression has classes")


@dataclass(frozen=True, eq=False)
class _InDtype:
    """A data set in one dtype; shared by all tasks on it."""

    x: Floats
    y: Integers
    x_test: Floats
    y_test: Integers
    x_val: Floats | None = None
    y_val: Integers | None = None

    @staticmethod
    def of(data: Dataset, dtype: str) -> _InDtype:
        x, x_test = (np.ascontiguousarray(each, dtype) for each in (data.x_train, data.x_test))
        y, y_test = (np.ascontiguousarray(each, np.int64) for each in (data.y_train, data.y_test))
        if data.x_val is None or data.y_val is None:
            return _InDtype(x, y, x_test, y_test)
        x_val = np.ascontiguousarray(data.x_val, dtype)
        return _InDtype(x, y, x_test, y_test, x_val, np.ascontiguousarray(data.y_val, np.int64))

    @cached_property
    def sparse(self) -> Any:
        """As the compiled loop takes it; None where there is no such loop, or it does not pay."""
        make = find("softmax_visits")
        return None if make is None else make(self.x.reshape(len(self.x), -1), self.y)
