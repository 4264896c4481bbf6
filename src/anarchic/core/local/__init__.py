"""Local rules, one a file: what a worker does in a local step."""

from anarchic.core.local.momentum import Momentum
from anarchic.core.local.prox import Prox
from anarchic.core.local.rule import Held, LocalRule, Stateless
from anarchic.core.local.scaffold import Scaffold
from anarchic.core.local.sgd import Sgd

LOCAL_RULES = {"sgd": Sgd, "prox": Prox, "scaffold": Scaffold, "momentum": Momentum}

__all__ = ["LOCAL_RULES", "Held", "LocalRule", "Momentum", "Prox", "Scaffold", "Sgd", "Stateless"]
