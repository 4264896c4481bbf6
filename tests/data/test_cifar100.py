import numpy as np
import pytest

from anarchic.data import cifar100, load
from anarchic.data.cifar10 import read_records
from anarchic.errors import ConfigError, DataError


@pytest.fixture
def few(tmp_path, monkeypatch):
    """Two training images and one test image in the files' own form."""
    folder = tmp_path / "cifar100" / "cifar-100-binary"
    folder.mkdir(parents=True)
    record = lambda coarse, fine, pixel: bytes([coarse, fine]) + bytes([pixel]) * 3072  # noqa: E731
    (folder / "train.bin").write_bytes(record(11, 19, 0) + record(15, 29, 255))
    (folder / "test.bin").write_bytes(record(10, 49, 100))
    monkeypatch.setattr(cifar100, "_IMAGES", {"train.bin": 2, "test.bin": 1})
    return tmp_path


def test_fine_and_coarse_labels_are_read(few):
    data = load("cifar100", few)
    assert (data.y_train.tolist(), data.y_test.tolist(), data.classes) == ([19, 29], [49], 100)
    assert data.x_train.shape == (2, 3, 32, 32)
    assert data.x_train[0, :, 0, 0] == pytest.approx([-1.8968, -1.8973, -1.5967], abs=1e-3)
    assert data.augment == "crop-flip"
    coarse = load("cifar100", few, label="coarse")
    assert (coarse.y_train.tolist(), coarse.classes) == ([11, 15], 20)
    assert np.array_equal(coarse.x_train, data.x_train)
    with pytest.raises(ConfigError, match="no kind of label 'rough'"):
        load("cifar100", few, label="rough")


def test_labels_out_of_range_are_damage(tmp_path):
    path = tmp_path / "test.bin"
    path.write_bytes(bytes([3, 100]) + bytes(3072))
    with pytest.raises(DataError, match="label 100, where 0 to 99"):
        read_records(path, 1, (20, 100))


def test_a_pickle_is_not_opened(empty_home, tmp_path):
    (tmp_path / "cifar100" / "cifar-100-python").mkdir(parents=True)
    with pytest.raises(DataError, match=r"a pickle.* not opened: put cifar-100-binary.tar.gz"):
        load("cifar100", tmp_path)
