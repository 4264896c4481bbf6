"""Where the public data sets can be fetched, and what the files must be.

Sizes and sha256 are those of the file on the mirror. All addresses are in this module; a file is
looked up by the folder of its data set and its uncompressed name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

UNKNOWN_SIZE_LIMIT = 32 * 2**20
"""The most bytes accepted from a mirror whose file has no published size."""


@dataclass(frozen=True)
class Source:
    """One file on its mirrors; every mirror has the same bytes.

    ``members`` makes it an archive: path inside the archive -> file name after unpacking.
    ``sha256`` and ``size`` are None where none was published; such a file must be an archive with
    checksums of its own, and its loader checks what it contains.
    """

    name: str
    urls: tuple[str, ...]
    size: int | None = None
    sha256: str | None = None
    members: Mapping[str, str] = field(default_factory=dict)

    @property
    def limit(self) -> int:
        """The largest number of bytes that is accepted."""
        return UNKNOWN_SIZE_LIMIT if self.size is None else self.size


def _gzipped(roots: Sequence[str], files: str) -> dict[str, Source]:
    found = (line.split() for line in files.strip().splitlines())
    return {
        name: Source(f"{name}.gz", tuple(f"{root}/{name}.gz" for root in roots), int(size), sha256)
        for name, size, sha256 in found
    }


_MNIST = """
train-images-idx3-ubyte 9912422 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
train-labels-idx1-ubyte 28881 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
t10k-images-idx3-ubyte 1648877 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
t10k-labels-idx1-ubyte 4542 f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
"""
_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
_FASHION_MNIST = """
train-images-idx3-ubyte 26421880 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
train-labels-idx1-ubyte 29515 a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
t10k-images-idx3-ubyte 4422102 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
t10k-labels-idx1-ubyte 5148 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
"""
_FASHION_MNIST_MIRRORS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
)
_CIFAR10_BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
_CIFAR10 = Source(
    "cifar-10-binary.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    size=170_052_171,
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    members={f"cifar-10-batches-bin/{name}": name for name in _CIFAR10_BATCHES},
)
_CIFAR100_FILES = ("train.bin", "test.bin")
_CIFAR100 = Source(
    "cifar-100-binary.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
    size=168_513_733,
    sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    members={f"cifar-100-binary/{name}": name for name in _CIFAR100_FILES},
)

# Project Gutenberg publishes no checksum and has moved old files before, hence two addresses. The
# zip has CRCs, and the loader refuses a text with other roles than LEAF's.
_SHAKESPEARE = Source(
    "1994-01-100.zip",
    (
        "https://www.gutenberg.org/files/100/old/old/1994-01-100.zip",
        "https://www.gutenberg.org/files/100/old/1994-01-100.zip",
    ),
    members={"100.txt": "pg100.txt"},
)

SOURCES: Mapping[str, Mapping[str, Source]] = {
    "mnist": _gzipped(_MNIST_MIRRORS, _MNIST),
    "fashion-mnist": _gzipped(_FASHION_MNIST_MIRRORS, _FASHION_MNIST),
    "cifar10": dict.fromkeys(_CIFAR10_BATCHES, _CIFAR10),
    "cifar100": dict.fromkeys(_CIFAR100_FILES, _CIFAR100),
    "shakespeare": {"pg100.txt": _SHAKESPEARE},
}
"""Folder of the data set -> uncompressed file name -> source."""
