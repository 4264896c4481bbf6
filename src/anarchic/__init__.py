"""Anarchic federated learning: the workers decide when, how long and whether they train."""

from anarchic.core.around import Carry, Clip, StalenessDiscount
from anarchic.core.local import LocalRule, Momentum, Prox, Scaffold, Sgd
from anarchic.core.rule import Rule, State
from anarchic.core.rules import AfaCd, AfaCs, FedAsync, FedAvg, FedBuff
from anarchic.core.steps import AdamStep, MomentumStep, SgdStep, Step, YogiStep
from anarchic.core.types import Layout, Snapshot, Update, Updates

__version__ = "0.1.0"

__all__ = [
    "AdamStep",
    "AfaCd",
    "AfaCs",
    "Carry",
    "Clip",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "Layout",
    "LocalRule",
    "Momentum",
    "MomentumStep",
    "Prox",
    "Rule",
    "Scaffold",
    "Sgd",
    "SgdStep",
    "Snapshot",
    "StalenessDiscount",
    "State",
    "Step",
    "Update",
    "Updates",
    "YogiStep",
]
