"""Server rules, one file each. ``core/registry.py`` lists them by name."""

from anarchic.core.rules.afa_cd import AfaCd
from anarchic.core.rules.afa_cs import AfaCs
from anarchic.core.rules.fedasync import FedAsync
from anarchic.core.rules.fedavg import FedAvg
from anarchic.core.rules.fedbuff import FedBuff

__all__ = ["AfaCd", "AfaCs", "FedAsync", "FedAvg", "FedBuff"]
