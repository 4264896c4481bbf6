"""Try every kind in every world, or those that are named, and write what docs/models.md says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.kinds.outcome import TOLD, Outcome
from tests.kinds.page import LOOPS, PAGE, RESULTS, written
from tests.kinds.refused import refusals
from tests.kinds.worlds import EVERY, batched, live, loop


def measured(test: str) -> Outcome | None:
    """What a test of another library measured; None where it fails or is skipped."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.json"
        done = subprocess.run(
            [*command, f"tests/bridges/{test}"],
            capture_output=True, text=True, check=False, env={**os.environ, TOLD: str(told)},
        )  # fmt: skip
        fine = done.returncode == 0 and "skipped" not in done.stdout and told.exists()
        return Outcome(**json.loads(told.read_text())) if fine else None


def tried(name: str) -> dict[str, Outcome]:
    """A kind in every world."""
    found: dict[str, Outcome | None] = {}
    if name in EVERY:
        found = {"loop": loop(name), "batched": batched(name)}
    if name in LOOPS:
        found["live"] = measured(LOOPS[name])
    else:
        with tempfile.TemporaryDirectory() as folder:
            found["live"] = live(name, Path(folder))
    return {world: each or Outcome() for world, each in found.items()}


def main(chosen: list[str]) -> int:
    """``chosen`` are the kinds to be tried again; those that are not stay as they were."""
    told = json.loads(RESULTS.read_text()) if chosen else {}
    refused = refusals()
    if unknown := [name for name in chosen if name not in {*EVERY, *LOOPS, *refused}]:
        print("There is no such kind:", *unknown, sep="\n  ")  # noqa: T201
        return 2
    results: dict[str, dict[str, dict]] = {}
    failed = []
    for name in [*EVERY, *(name for name in LOOPS if name not in EVERY)]:
        if chosen and name not in chosen:
            results[name] = told[name]
            continue
        found = tried(name)
        results[name] = {world: asdict(each) for world, each in found.items()}
        failed += [f"{name}, {world}" for world, each in found.items() if not each.learnt]
        print(name, {world: round(each.after, 3) for world, each in found.items()}, flush=True)  # noqa: T201
    for name, worlds in refused.items():
        results[name] = {world: asdict(Outcome(refused=told)) for world, told in worlds.items()}
    if failed:
        print("Not written, since these failed:", *failed, sep="\n  ")  # noqa: T201
        return 1
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(written())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
