"""What is kept of a run of a sweep."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from anarchic.sim.run import Run
from anarchic.study.results import accuracies

CLOCK = ("train_seconds",)  # columns that differ from run to run
BASIC = ("round", "virtual_s", "updates", "refused", "local_steps", "test_samples")
VALIDATION = "val_"  # how metrics of validation data begin


def everything(run: Run) -> dict[str, Any]:
    """Accuracy by several measures, every metric by round, and a digest of the last model."""
    names = dict.fromkeys(name for row in run.metrics for name in row if name not in CLOCK)
    kept = [n for n in names if any(row.get(n) is not None for row in run.metrics)]
    last, reason = run.metrics[-1], run.summary.get("stop_reason")
    return {
        **accuracies(run),
        "updates": int(last.get("updates") or 0),  # a file gives floats
        "local_steps": int(last.get("local_steps") or 0),
        "model_bytes": run.params.nbytes,
        "model": hashlib.sha256(run.params.tobytes()).hexdigest(),
        **({} if reason is None else {"reason": reason}),
        "curve": {name: [row.get(name) for row in run.metrics] for name in kept},
    }


def without_test(run: Run) -> dict[str, Any]:
    """The same with metrics of validation data only: what may be chosen by."""
    found = everything(run)
    hidden = ("final", "last10", "best", "last50", "last50_spread")
    kept = (*BASIC, *(name for name in found["curve"] if name.startswith(VALIDATION)))
    curve = {name: values for name, values in found["curve"].items() if name in kept}
    return {**{n: v for n, v in found.items() if n not in hidden}, "curve": curve}


READERS: Mapping[str, Callable[[Run], Mapping[str, Any]]] = {
    "all": everything,
    "validation": without_test,
}
