"""The code blocks of a page as one script: what a reader does who copies them in order.

``bash`` and ``python`` blocks are run. ``sh`` and ``py`` blocks look alike and are not run:
they need something that a reader brings. A ``python`` block with a title is a file of that name.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.servers import free_port

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^```(bash|python)(?: title="([\w./-]+)")?\n(.*?)^```$', re.S | re.M)
PORT, ADMIN = "8780", "8781"  # what pages say; a run takes free ones
# The servers and workers that a page leaves in the background end with it.
HEAD = "set -euo pipefail\ntrap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT\n"
EXAMPLES = f"examples={ROOT / 'examples'}\n"
END = "THE_END_OF_THIS_FILE"


@dataclass(frozen=True)
class Done:
    code: int
    output: str


def blocks(text: str) -> list[tuple[str, str, str]]:
    """Kind, title and text of every block that is run."""
    return BLOCK.findall(text)


def script(text: str, port: int) -> str:
    parts = [_part(*block) for block in blocks(text)]
    text = "\n".join(parts).replace(PORT, str(port))
    return HEAD + EXAMPLES + (text.replace(ADMIN, str(free_port())) if ADMIN in text else text)


def _part(kind: str, title: str, text: str) -> str:
    if kind == "bash":
        return text
    if title:
        return f"mkdir -p $(dirname {title})\ncat > {title} <<'{END}'\n{text}{END}"
    return f"python - <<'{END}'\n{text}{END}"


def run(text: str, folder: Path, port: int, limit_s: float = 300) -> Done:
    """Run the blocks of a page in a folder, and end whatever they have started."""
    with (folder / ".output").open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-c", script(text, port)],
            cwd=folder,
            env=environment(folder),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        code = process.wait(limit_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return Done(code, (folder / ".output").read_text(encoding="utf-8", errors="replace"))


def environment(home: Path) -> dict[str, str]:
    """That of somebody who has installed the package, and nothing else."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ANARCHIC_")}
    programs = Path(sys.executable).parent
    return {
        **kept,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(home),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "120",
        "BROWSER": "true",  # what --open starts
    }
