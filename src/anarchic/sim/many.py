"""Several runs at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from anarchic.sim.experiment import Experiment
from anarchic.sim.run import Progress, Run, simulate
from anarchic.sim.settings import Settings


def simulate_many(
    runs: Mapping[str, Settings | Experiment],
    *,
    out: Path | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    stop_after_s: float | None = None,
    watch: Callable[[str, Progress], None] | None = None,
) -> dict[str, Run]:
    """Train all of them and record each in ``out/name``.

    With ``resume`` runs whose directory exists go on, the others start.
    """
    finished = {}
    for name, what in runs.items():
        path = None if out is None else out / name
        finished[name] = simulate(
            what,
            out=path,
            resume=resume and path is not None and (path / "settings.json").exists(),
            checkpoint_every=checkpoint_every,
            watch=None if watch is None else lambda progress, name=name: watch(name, progress),  # type: ignore[misc]
        )
    return finished
