"""What a result was computed with: hardware and versions of software."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np


def hardware(device: str) -> dict[str, Any]:
    """The processor and the threads it was used with, or the GPU."""
    torch: Any = sys.modules.get("torch")  # not loaded by a measurement that has no use for it
    if device.startswith("cuda") and torch is not None:
        return {"name": torch.cuda.get_device_name(device), "threads": None}
    threads = torch.get_num_threads() if torch is not None else 1
    return {"name": _processor(), "cores": os.cpu_count(), "threads": threads}


def software() -> dict[str, str]:
    from anarchic import __version__

    found = {"anarchic": __version__, "python": platform.python_version(), "numpy": np.__version__}
    if "torch" in sys.modules:
        found["torch"] = str(sys.modules["torch"].__version__)
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
