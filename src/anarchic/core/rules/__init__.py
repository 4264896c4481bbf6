"""Server rules, one a file. A new one is listed here, by its name on the command line."""

from anarchic.core.rules.afa_cd import AfaCd
from anarchic.core.rules.afa_cs import AfaCs
from anarchic.core.rules.fedasync import FedAsync
from anarchic.core.rules.fedavg import FedAvg
from anarchic.core.rules.fedbuff import FedBuff

RULES = {
    "afa-cd": AfaCd,
    "afa-cs": AfaCs,
    "fedavg": FedAvg,
    "fedasync": FedAsync,
    "fedbuff": FedBuff,
}

__all__ = ["RULES", "AfaCd", "AfaCs", "FedAsync", "FedAvg", "FedBuff"]
