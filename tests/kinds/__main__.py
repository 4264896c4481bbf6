"""Try every kind in every world, and write results.json and docs/models.md."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.kinds.page import LOOPS, PAGE, RESULTS, written
from tests.kinds.refused import refusals
from tests.kinds.worlds import Outcome, batched, live, loop
from tests.train.kinds import KINDS


def passes(test: str) -> bool:
    """Whether a test of another library passes; skipped ones do not."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    shown = subprocess.run(
        [*command, f"tests/bridges/{test}"], capture_output=True, text=True, check=False
    )
    return shown.returncode == 0 and "passed" in shown.stdout and "skipped" not in shown.stdout


def main() -> int:
    results: dict[str, dict[str, dict]] = {}
    failed = []
    for name in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            found = {"loop": loop(name), "batched": batched(name), "live": live(name, Path(folder))}
        results[name] = {world: asdict(each) for world, each in found.items()}
        failed += [f"{name}, {world}" for world, each in found.items() if not each.learnt]
        print(name, {world: round(each.after, 3) for world, each in found.items()}, flush=True)  # noqa: T201
    for name, test in LOOPS.items():
        ok = passes(test)
        print(name, "works" if ok else "FAILED", flush=True)  # noqa: T201
        failed += [] if ok else [f"{name}: {test}"]
        results[name] = {"live": asdict(Outcome())}
    for name, worlds in refusals().items():
        results[name] = {world: asdict(Outcome(refused=told)) for world, told in worlds.items()}
    if failed:
        print("Not written, since these failed:", *failed, sep="\n  ")  # noqa: T201
        return 1
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(written())
    return 0


if __name__ == "__main__":
    sys.exit(main())
