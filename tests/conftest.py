"""Settings of the whole suite."""

import gc
import os

from hypothesis import settings

# Set before anything loads torch: the suite's processes share the cores, threads would fight.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples every time: a failure in CI is a failure here.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# What is imported and collected stays: collections need not walk over it again and again.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or libraries complain at the end about what is left
