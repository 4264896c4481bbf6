"""Functions that evaluate, and how they can go wrong."""

from __future__ import annotations

import os
import time

SLOW_S = 1.0


def slow(snapshot):
    time.sleep(SLOW_S)
    return {"seen": snapshot.version}


def diverged(snapshot):
    return {"loss": float("nan"), "error": 0.5, "version": -1}


def crashing(snapshot):
    if snapshot.version < 2:
        os._exit(1)
    return {"seen": snapshot.version}


def failing(snapshot):
    if snapshot.version < 2:
        raise ValueError("not yet")
    return {"seen": snapshot.version}


def bare(snapshot):
    return 0.5
