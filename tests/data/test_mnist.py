import struct

import numpy as np
import pytest

from anarchic.data import load
from anarchic.errors import DataError

TRAIN_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
TEST_COUNTS = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def idx(array):
    array = np.asarray(array, np.uint8)
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}i", *array.shape)
    return header + array.tobytes()


@pytest.fixture
def folder(tmp_path, empty_home):
    """Two black training images, and a white test image."""
    mnist = tmp_path / "mnist"
    mnist.mkdir()
    (mnist / "train-images-idx3-ubyte").write_bytes(idx(np.zeros((2, 28, 28))))
    (mnist / "train-labels-idx1-ubyte").write_bytes(idx([3, 9]))
    (mnist / "t10k-images-idx3-ubyte").write_bytes(idx(np.full((1, 28, 28), 255)))
    (mnist / "t10k-labels-idx1-ubyte").write_bytes(idx([0]))
    return mnist


def test_small_files_are_normalised(folder):
    data = load("mnist", folder.parent)
    assert data.x_train.shape == (2, 1, 28, 28)
    assert data.x_train.dtype == np.float32
    assert data.y_train.tolist() == [3, 9]
    assert data.x_train == pytest.approx(-0.1307 / 0.3081)
    assert data.x_test == pytest.approx((1 - 0.1307) / 0.3081)


def test_fashion_has_its_own_folder_and_normalisation(folder):
    data = load("fashion-mnist", folder.rename(folder.with_name("fashion-mnist")).parent)
    assert data.name == "fashion-mnist"
    assert data.x_test == pytest.approx((1 - 0.2860) / 0.3530)


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("train-images-idx3-ubyte", b"", "first bytes are none"),
        ("train-images-idx3-ubyte", b"<html>", "first bytes are 3c 68 74 6d"),
        ("train-images-idx3-ubyte", idx([1]), "first bytes are 00 00 08 01"),
        ("train-images-idx3-ubyte", idx(np.zeros((2, 28, 28)))[:-1], "and holds 1,567"),
        ("train-images-idx3-ubyte", idx(np.zeros((2, 8, 8))), "8 x 8"),
        ("train-labels-idx1-ubyte", idx([3, 10]), "label 10"),
    ],
)
def test_damage_is_named(folder, name, content, found):
    (folder / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        load("mnist", folder.parent)
    assert str(folder / name) in str(caught.value)
    assert found in str(caught.value)


def test_files_that_do_not_belong_together_are_refused(folder):
    (folder / "train-labels-idx1-ubyte").write_bytes(idx([3]))
    with pytest.raises(DataError, match="2 training inputs but 1 labels"):
        load("mnist", folder.parent)


def test_the_real_mnist(real_data):
    data = load("mnist", real_data)
    assert np.bincount(data.y_train).tolist() == TRAIN_COUNTS
    assert np.bincount(data.y_test).tolist() == TEST_COUNTS
    assert data.x_train.shape == (60_000, 1, 28, 28)
    assert data.x_train.mean(dtype=float) == pytest.approx(0, abs=2e-4)
    assert data.x_train.std(dtype=float) == pytest.approx(1, abs=1e-4)
