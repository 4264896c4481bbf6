"""What a run ends with: its summary, and the software that it was made with."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from anarchic.sim.record import MetricsRow

if TYPE_CHECKING:
    from anarchic.sim.run import ActiveRun


def summary_of(run: ActiveRun, stopped_at: str | None) -> dict[str, Any]:
    last, seconds = run.metrics[-1], run.train_seconds
    accuracies = [a for row in run.metrics if (a := row.get("accuracy")) is not None]
    steps = int(last["local_steps"] or 0)
    experiment = run.engine.experiment
    return {
        "final_accuracy": last.get("accuracy"),
        "last10_accuracy": _last10(run, accuracies),
        "best_accuracy": max(accuracies) if accuracies else None,
        "final_loss": last.get("loss"),
        "rounds": run.engine.version,
        "updates": run.engine.row,
        "local_steps": steps,
        "virtual_s": last["virtual_s"],
        "stopped_at": stopped_at,
        **({"stop_reason": str(run.stopped)} if stopped_at == "stopped" else {}),
        **({"stop_reason": run.reason} if stopped_at == "diverged" else {}),
        "train_seconds": round(seconds, 4),
        "local_steps_per_second": round(steps / seconds, 1) if seconds else None,
        "updates_per_second": round(run.engine.row / seconds, 1) if seconds else None,
        "peak_rss_mb": _peak_rss_mb(),
        **_clipping(run),
        **_wasted(run),
        "seed": experiment.about.get("seed", experiment.seed),  # as it was asked for
        "software": software(),
    }


def _last10(run: ActiveRun, accuracies: list[float]) -> float | None:
    """The paper's measure; None unless the last ten rounds were evaluated."""
    known = run.engine.experiment.last10 or in_a_row(run.metrics[-10:])
    return float(np.mean(accuracies[-10:])) if accuracies and known else None


def in_a_row(rows: Sequence[MetricsRow]) -> bool:
    """Whether they are ten evaluations without a round between them, or all that there can be."""
    rounds = [row["round"] or 0 for row in rows]
    whole = len(rows) == 10 or rounds[:1] == [0]
    return whole and all(later - row == 1 for row, later in pairwise(rounds))


def _clipping(run: ActiveRun) -> dict[str, float]:
    """How many updates the guard has clipped, and the most that a length was of the scale."""
    guard = run.engine.experiment.rule.guard_record(run.engine.state)
    return {} if guard is None else {"clipped": guard.clipped, "farthest": guard.farthest}


def _wasted(run: ActiveRun) -> dict[str, Any]:
    """What workers did in vain until the last version, where it is known."""
    wasted, state = run.engine.experiment.timetable.wasted, run.engine.state
    if wasted is None:
        return {}
    until = wasted.block(0, run.engine.version)
    pulled = int(state.params.nbytes) + sum(int(each.nbytes) for each in state.extras.values())
    return {"wasted": {**until.total, "bytes": until.transfers * pulled}}


def _peak_rss_mb() -> float | None:
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / 2**20 if sys.platform == "darwin" else peak / 2**10, 1)


def software() -> dict[str, str]:
    """The versions that a result depends on; torch's where it is in use."""
    from anarchic import __version__

    found = {"anarchic": __version__, "python": platform.python_version(), "numpy": np.__version__}
    if "torch" in sys.modules:
        found["torch"] = str(sys.modules["torch"].__version__)
    return found
