"""Data sets, and their partition among workers."""

from anarchic.data.cifar10 import load_cifar10
from anarchic.data.cifar100 import load_cifar100
from anarchic.data.csv_file import load_csv
from anarchic.data.dataset import Dataset, load
from anarchic.data.digits import load_digits
from anarchic.data.files import locate
from anarchic.data.huggingface import load_huggingface
from anarchic.data.leaf import load_femnist, load_leaf_shakespeare
from anarchic.data.mnist import load_fashion_mnist, load_mnist
from anarchic.data.partition import Parts, by_partitioner, by_role, dirichlet, iid, labels
from anarchic.data.quadratics import Quadratics, random_quadratics
from anarchic.data.shakespeare import load_shakespeare
from anarchic.data.synthetic import load_synthetic

__all__ = [
    "Dataset",
    "Parts",
    "Quadratics",
    "by_partitioner",
    "by_role",
    "dirichlet",
    "iid",
    "labels",
    "load",
    "load_cifar10",
    "load_cifar100",
    "load_csv",
    "load_digits",
    "load_fashion_mnist",
    "load_femnist",
    "load_huggingface",
    "load_leaf_shakespeare",
    "load_mnist",
    "load_shakespeare",
    "load_synthetic",
    "locate",
    "random_quadratics",
]
