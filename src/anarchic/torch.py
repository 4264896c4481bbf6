"""The short name of ``anarchic.bridges.torch``: a PyTorch training loop as a worker."""

from anarchic.bridges.torch import TorchVisit, visit

__all__ = ["TorchVisit", "visit"]
