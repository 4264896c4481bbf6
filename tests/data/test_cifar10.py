import numpy as np
import pytest

from anarchic.data import load
from anarchic.data.cifar10 import read_records
from anarchic.errors import DataError


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (bytes(3073), "3,073 bytes, not 30,730,000"),
        (b"\x0a" * 30_730_000, "label 10"),
    ],
)
def test_damage_is_named(tmp_path, content, found):
    path = tmp_path / "test_batch.bin"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_records(path, 10_000, (10,))
    assert str(path) in str(caught.value)
    assert found in str(caught.value)


@pytest.mark.slow
def test_the_real_cifar10(real_data):
    data = load("cifar10", real_data)
    assert data.x_train.shape == (50_000, 3, 32, 32)
    assert data.x_train.dtype == np.float32
    assert data.augment == "crop-flip"
    assert np.bincount(data.y_train).tolist() == [5_000] * 10
    assert np.bincount(data.y_test).tolist() == [1_000] * 10
    assert data.y_train[:3].tolist() == [6, 9, 9]  # a frog and two trucks
    assert data.x_train[0, :, 0, 0] == pytest.approx(
        [(59 - 125.3069) / 62.9932, (62 - 122.9504) / 62.0887, (63 - 113.8654) / 66.7049], abs=1e-4
    )
    for channel in range(3):
        pixels = data.x_train[:, channel]
        assert pixels.mean(dtype=float) == pytest.approx(0, abs=1e-5)
        assert pixels.std(dtype=float) == pytest.approx(1, abs=1e-5)
