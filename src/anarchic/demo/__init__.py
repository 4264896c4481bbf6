"""Two demos on the embedded digits: a simulated race, and real processes that get killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from anarchic.errors import RunError

MARK = "demo.json"
"""Marks a directory that a demo made; a later demo may replace its files."""


def demo_directory(out: Path, own: Iterable[str]) -> None:
    """Make the directory, or delete the files of an earlier demo (``own``, names or patterns)."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).exists())):
        raise RunError(
            f"{out} exists and was not made by the demo: choose another directory with --out."
        )
    replaced = list(own)
    about = {"made_by": "anarchic demo", "replaces": replaced}
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / MARK).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        for old in [path for pattern in replaced for path in out.glob(pattern)]:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    except OSError as error:
        raise RunError(
            f"The demo cannot write to {out}: {error.strerror or error}. Choose another directory "
            "with --out."
        ) from error
