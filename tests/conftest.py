"""Settings of the whole suite."""

import atexit
import gc
import os
import shutil
from functools import cache
from pathlib import Path

import typer.testing
from hypothesis import settings
from typer.main import get_command

# Set before anything loads torch: the suite's processes share the cores, threads would fight.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A store waits for the disk with every commit, and a test has no power cut: in memory it need not.
MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes


def is_fit(folder: Path) -> bool:
    """Whether temporary files of every test can be there; some are programs."""
    if not os.access(folder, os.W_OK | os.X_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free > ROOM


if is_fit(MEMORY):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    os.environ.setdefault("TMPDIR", str(MEMORY))

# Typer's runner builds every command anew for each call, which takes longer than most calls.
typer.testing._get_command = cache(get_command)

# The same examples every time: a failure in CI is a failure here.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# By then the main process has all that a process of xdist found. To take apart what it has imported
# would take two to three seconds more.
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
if IS_WORKER:
    atexit.register(os._exit, 0)

# What is imported and collected stays: collections need not walk over it again and again.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)  # of what a test makes, little is garbage in cycles
    gc.enable()


def pytest_unconfigure() -> None:
    if not IS_WORKER:  # which ends without a look at what is left
        gc.unfreeze()  # or libraries complain at the end about what is left
