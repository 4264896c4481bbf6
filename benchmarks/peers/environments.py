"""Make the environments of the peers: ``python -m benchmarks.peers.environments`` (bench-peers).

Each has its own, ``.bench/NAME``, from its own file of exact versions. One that cannot be made
leaves the last line of its error behind, and the benchmark shows that in its place.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.workloads import PLACE

PEERS = ("pfl", "fedjax", "flower", "appfl", "flsim")


def main() -> int:
    for name in sys.argv[1:] or PEERS:
        print(f"{name}: {install(name) or 'ready'}", flush=True)
    return 0


def install(name: str, place: Path = PLACE) -> str:
    """Make one environment; what went wrong, if anything."""
    folder, wanted = place / name, Path(__file__).with_name(f"{name}.txt")
    made_from = folder / "made-from.txt"
    if made_from.exists() and made_from.read_text() == wanted.read_text():
        return ""
    failed = ""
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin" / "pip"), "install", "--quiet", "--no-deps", "-r", str(wanted)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            failed = last_line(done.stderr)
            break
    why = place / f"{name}.failed"
    why.parent.mkdir(parents=True, exist_ok=True)
    if failed:
        why.write_text(failed + "\n", encoding="utf-8")
        return failed
    why.unlink(missing_ok=True)
    made_from.write_text(wanted.read_text())
    return ""


def missing(name: str, place: Path = PLACE) -> str:
    """Why a peer cannot run; empty if it can."""
    if (place / f"{name}.failed").exists():
        return f"not installed: {(place / f'{name}.failed').read_text().strip()}"
    if not (place / name / "made-from.txt").exists():
        return "not installed: make bench-peers"
    return ""


def last_line(text: str) -> str:
    """The last line that names an error, or else the last with words in it."""
    lines = [line.strip() for line in text.splitlines() if re.search("[A-Za-z]", line)]
    errors = [line for line in lines if re.search(r"(error|exception|what\(\)): +\S", line, re.I)]
    last = (errors or lines or ["it said nothing"])[-1]
    return last.removeprefix("traceback : ")  # as torchrun calls a signal


if __name__ == "__main__":
    sys.exit(main())
