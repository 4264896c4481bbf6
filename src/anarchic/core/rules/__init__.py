"""Server rules, one file per family. ``core/registry.py`` lists them by name."""

from anarchic.core.rules.aced import Aced
from anarchic.core.rules.afa_cd import AfaCd
from anarchic.core.rules.afa_cs import AfaCs
from anarchic.core.rules.area import Area
from anarchic.core.rules.async_sgd import AsyncSgd
from anarchic.core.rules.calibrated import Ca2fl, FedStale, FedVarp
from anarchic.core.rules.fadas import Fadas
from anarchic.core.rules.fedasync import FedAsync
from anarchic.core.rules.fedavg import FedAvg
from anarchic.core.rules.fedbuff import FedBuff
from anarchic.core.rules.feddyn import FedDyn
from anarchic.core.rules.fednova import FedNova
from anarchic.core.rules.generalized import GeneralizedAsyncSgd
from anarchic.core.rules.malenia import Malenia
from anarchic.core.rules.mifa import Ace, Mifa
from anarchic.core.rules.rennala import Rennala
from anarchic.core.rules.ringleader import Ringleader

__all__ = [
    "Ace",
    "Aced",
    "AfaCd",
    "AfaCs",
    "Area",
    "AsyncSgd",
    "Ca2fl",
    "Fadas",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FedDyn",
    "FedNova",
    "FedStale",
    "FedVarp",
    "GeneralizedAsyncSgd",
    "Malenia",
    "Mifa",
    "Rennala",
    "Ringleader",
]
