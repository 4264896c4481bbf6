"""Writing a version of a run to a file that any reader of safetensors opens."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from anarchic import wire
from anarchic.callbacks.best import LOW, USUAL
from anarchic.core.types import Vector
from anarchic.errors import ConfigError, RunError
from anarchic.server.commands import (
    check_counts,
    commands,
    in_words,
    is_withdrawn,
    shown_versions,
    withdrawal,
)
from anarchic.server.commands import withdrawn as withdrawn_by
from anarchic.server.records import StoredRun
from anarchic.server.refold import refold, why_not
from anarchic.server.replay import is_same
from anarchic.server.rollbacks import kept_versions
from anarchic.server.runs import stored_layout
from anarchic.server.store import Store, open_store

EVALUATIONS = 10**9  # all of them


@dataclass(frozen=True)
class Exported:
    """Which version was written, by which metric it was the best, and what withdrew it."""

    version: int
    metric: str | None = None
    value: float | None = None
    withdrawn: str | None = None  # by which command, if it was


def export(
    where: str | Path,
    out: str | Path,
    *,
    version: int | Literal["best", "newest"] = "newest",
    metric: str | None = None,
    withdrawn: bool = False,
) -> Exported:
    """Write a version that the store still has. ``metric`` says by what the best is chosen.

    The best is that among the versions which are kept and were not withdrawn. One that was is
    refused unless ``withdrawn`` says that it is meant.
    """
    check_folder(out)
    with closing(open_store(where, create=False)) as store:
        run = _run(store)
        found = best_version(store, metric) if version == "best" else None
        if metric is not None and found is None:
            raise ConfigError("A metric chooses the best version: say --version best too.")
        number = run.version if version == "newest" else version
        chosen = Exported(int(number)) if found is None else found
        known = commands(store)
        if not withdrawn:
            check_counts(known, chosen.version, run.version, "--withdrawn")
        by = withdrawal(known, chosen.version)
        chosen = replace(chosen, withdrawn=None if by is None else in_words(by))
        body = store.model(chosen.version)
        if chosen.version > run.version:
            raise ConfigError(f"There is no version {chosen.version}: the newest is {run.version}.")
        if body is None:
            raise RunError(_not_kept(store, run, chosen.version))
        _write(out, run, wire.decode_snapshot(body)[1].params, chosen.version)
    return chosen


def _not_kept(store: Store, run: StoredRun, version: int) -> str:
    kept = shown_versions(kept_versions(store))
    told = f"Version {version} is not kept; there are {kept}."
    if why := why_not(store, run):
        return f"{told} It cannot be folded again either: {why}."
    return f"{told} 'anarchic replay STORE --until {version} --out FILE' folds it again."


def best_version(store: Store, metric: str | None = None) -> Exported:
    """The best evaluated version among those that are kept; a metric's name says what is better."""
    kept, gone = {*kept_versions(store)}, withdrawn_by(commands(store))
    all_of_them = store.evaluations(EVALUATIONS)
    found = [(v, m) for v, m in all_of_them if v in kept and not is_withdrawn(gone, v)]
    if not found:
        raise RunError(
            f"None of the versions that are kept ({shown_versions(sorted(kept))}) was evaluated: "
            "serve with --evaluate, or name a version."
        )
    names = dict.fromkeys(name for _, metrics in found for name in metrics)
    chosen = metric or next((name for name in USUAL if name in names), None)
    if chosen not in names:
        raise ConfigError(
            f"No evaluation has the metric {metric or ' or '.join(USUAL)}; they have "
            f"{', '.join(names)}: name one with --metric."
        )
    sign = -1 if chosen.endswith(LOW) else 1
    values = [(sign * metrics[chosen], v) for v, metrics in found if _is_number(metrics, chosen)]
    if not values:
        raise RunError(f"No evaluation of a version that is kept has a finite {chosen}.")
    value, version = max(values)  # of equals the newest
    return Exported(version, chosen, sign * value)


def _is_number(metrics: dict[str, float], name: str) -> bool:
    return abs(metrics.get(name, float("nan"))) < float("inf")


@dataclass(frozen=True)
class FoldedAgain:
    """A version that was folded again, and whether it equals the published one, if that is kept."""

    version: int
    updates: int
    equal: bool | None
    withdrawn: str | None = None  # by which command, if the version was


def fold_again(
    store: Store,
    until: int,
    out: str | Path | None = None,
    progress: Callable[[int], None] = lambda count: None,
) -> FoldedAgain:
    """Fold the recorded updates up to a version, and write its model to ``out``."""
    if out is not None:
        check_folder(out)
    run, found = _run(store), refold(store, until=until, progress=progress)
    body = store.model(until)
    equal = None if body is None else is_same(found.state, wire.decode_snapshot(body)[1])
    if out is not None:
        _write(out, run, found.state.params, until)
    by = withdrawal(commands(store), until)
    return FoldedAgain(until, found.updates, equal, None if by is None else in_words(by))


def _run(store: Store) -> StoredRun:
    run = store.run()
    if run is None:
        raise RunError("The store holds no run yet.")
    return run


def check_folder(out: str | Path) -> None:
    if not Path(out).parent.is_dir():
        raise ConfigError(
            f"There is no directory {Path(out).parent} for --out {out}: create it first."
        )


def _write(out: str | Path, run: StoredRun, params: Vector, version: int) -> None:
    """With what the file of the first model said, so that another run can begin with this one."""
    layout, about = stored_layout(run), run.settings
    known = {"run": str(about["run"]), "version": str(version)}
    if about.get("buffer_policy") == "local":
        known |= wire.buffers_metadata("local", tuple(about.get("local_buffers", ())))
    if "module" in about:
        known |= {"module": about["module"], "module_seed": str(about.get("module_seed", 0))}
        known |= {"module_options": json.dumps(about.get("module_options", {}))}
    wire.save_model(Path(out), layout, params, **known)
