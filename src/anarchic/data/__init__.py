"""Data sets, and their partition among workers."""

from anarchic.data.cifar10 import load_cifar10
from anarchic.data.dataset import Dataset, load
from anarchic.data.digits import load_digits
from anarchic.data.files import locate
from anarchic.data.mnist import load_fashion_mnist, load_mnist
from anarchic.data.partition import Parts, by_role, dirichlet, iid, labels
from anarchic.data.quadratics import Quadratics, random_quadratics
from anarchic.data.shakespeare import load_shakespeare
from anarchic.data.synthetic import load_synthetic

__all__ = [
    "Dataset",
    "Parts",
    "Quadratics",
    "by_role",
    "dirichlet",
    "iid",
    "labels",
    "load",
    "load_cifar10",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
    "load_shakespeare",
    "load_synthetic",
    "locate",
    "random_quadratics",
]
