import numpy as np
import pytest

from anarchic.data import load


def test_the_split_is_stratified():
    data = load("digits")
    assert (data.x_train.shape, data.x_test.shape) == ((1437, 1, 8, 8), (360, 1, 8, 8))
    assert np.bincount(data.y_train).tolist() == [142, 146, 141, 147, 144, 146, 145, 143, 139, 144]
    assert np.bincount(data.y_test).tolist() == [36, 36, 36, 36, 37, 36, 36, 36, 35, 36]


def test_pixels_are_normalised():
    x = load("digits").x_train
    assert x.dtype == np.float32
    assert x.mean() == pytest.approx(0, abs=1e-3)
    assert x.std() == pytest.approx(1, abs=1e-3)
    assert len(np.unique(x)) == 17


def test_a_nearest_mean_tells_the_digits_apart():
    data = load("digits")
    means = np.stack([data.x_train[data.y_train == label].mean(axis=0) for label in range(10)])
    distances = ((data.x_test[:, None] - means) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == data.y_test).mean() > 0.85
