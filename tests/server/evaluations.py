"""Functions that evaluate, and how they can go wrong."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

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


def named(snapshot):
    return {name: float(tensor.sum()) for name, tensor in snapshot.tensors.items()}


def of_module(snapshot, module):
    """What a judge that asks for a module is given."""
    return {
        "seen": snapshot.version,
        "training": float(module.training),
        "var": float(module.bn.running_var.sum()),
        "count": float(module.bn.num_batches_tracked),
        "weight": float(module.last.weight.sum()),
    }


def annotated(net: nn.Module):
    return {"var": float(net.bn.running_var.sum())}


def two_snapshots(snapshot, data):
    return {}


def seen(snapshot):
    return {"seen": float(snapshot.version)}
