from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from anarchic.core import registry
from anarchic.data import Dataset, load
from anarchic.errors import ConfigError, DataError

X = np.zeros((3, 2), np.float32)


@pytest.mark.parametrize(
    ("train", "test", "says"),
    [
        ([0, 1], [0, 1, 1], "3 training inputs but 2 labels"),
        ([1, 2, 2], [0, 1, 1], "training labels go from 1 to 2, but there are 2 classes"),
        ([0, 1, 1], [-1, 1, 1], "test labels go from -1 to 1"),
    ],
)
def test_labels_that_do_not_fit_are_refused(train, test, says):
    with pytest.raises(DataError, match=f"mine: .*{says}|mine: {says}"):
        Dataset("mine", X, np.array(train), X, np.array(test), classes=2)


def test_the_known_names():
    assert list(registry.KINDS["datasets"].built_in) == [
        "digits",
        "mnist",
        "fashion-mnist",
        "cifar10",
        "cifar100",
        "shakespeare",
        "synthetic",
        "femnist",
        "leaf-shakespeare",
        "csv",
        "huggingface",
    ]


def test_a_wrong_name_gets_the_nearest_and_all_others():
    with pytest.raises(ConfigError) as caught:
        load("MNSIT")
    assert "'MNSIT'. Did you mean 'mnist'? There are digits, mnist," in str(caught.value)


def test_a_loader_of_ones_own_needs_no_hints_and_no_directory(tmp_path, monkeypatch):
    lines = (
        "from anarchic.data import load_digits",
        "def mine(scale=1): return load_digits(), scale",
    )
    (tmp_path / "own_loader.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    data, scale = load("own_loader:mine", scale=3)
    assert (data.name, scale) == ("digits", 3)
    with pytest.raises(ConfigError, match="no option 'size'"):
        load("own_loader:mine", size=3)


def test_a_wrong_option_gets_the_nearest_and_all_others():
    with pytest.raises(ConfigError, match=r"no option 'alhpa'\. Did you mean 'alpha'"):
        load("synthetic", alhpa=1)
    with pytest.raises(ConfigError, match=r"digits has no option 'seed'\. Its options: none"):
        load("digits", seed=1)


def test_options_of_another_type_are_refused():
    with pytest.raises(ConfigError, match="roles of shakespeare must be a whole number or None"):
        load("shakespeare", roles="all")
    with pytest.raises(ConfigError, match="iid of synthetic must be True or False, got 1"):
        load("synthetic", iid=1)


def test_importing_reads_nothing_heavy():
    heavy = (
        "{'gzip', 'lzma', 'tarfile', 'zipfile', 'urllib.request', 'rich', 'matplotlib', 'torch'}"
    )
    before = "import sys, numpy, numpy.random, anarchic.errors; before = set(sys.modules); "
    check = f"import anarchic.data; print(sorted({heavy} & (set(sys.modules) - before)))"
    ran = subprocess.run(
        [sys.executable, "-c", before + check], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"
