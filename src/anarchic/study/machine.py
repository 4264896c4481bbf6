"""The hardware that a result was computed with."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from anarchic.kernels.chunks import threads_in_use


def hardware(device: str) -> dict[str, Any]:
    """The GPU, or the processor and the most threads that a run could use.

    Torch has its own number of threads, compiled loops another; the larger one counts.
    """
    torch: Any = sys.modules.get("torch")  # a measurement may not have loaded it
    if device.startswith("cuda") and torch is not None:
        return {"name": torch.cuda.get_device_name(device)}
    most = max(threads_in_use(), 1 if torch is None else torch.get_num_threads())
    return {"name": _processor(), "cores": os.cpu_count(), "most_threads": most}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
