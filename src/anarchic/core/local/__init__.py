"""Local rules, one file each: what a worker does in a local step."""

from anarchic.core.local.momentum import Momentum
from anarchic.core.local.prox import Prox
from anarchic.core.local.rule import Held, LocalRule, Stateless
from anarchic.core.local.scaffold import Scaffold
from anarchic.core.local.sgd import Sgd

__all__ = ["Held", "LocalRule", "Momentum", "Prox", "Scaffold", "Sgd", "Stateless"]
