import numpy as np
import pytest

from anarchic.data import by_role, load
from anarchic.errors import ConfigError


def test_shapes_and_split():
    data = load("synthetic", workers=5, seed=3)
    parts = by_role(data)
    assert len(parts) == len(data.roles) == 5
    assert data.x_train.shape[1:] == (60,)
    assert data.x_train.dtype == np.float32
    assert min(map(len, parts)) >= 40  # of 50 samples at least, 80 % train
    assert len(data.y_train) / (len(data.y_train) + len(data.y_test)) == pytest.approx(
        0.8, abs=0.02
    )


def test_another_seed_gives_other_data():
    one, again, other = (load("synthetic", workers=3, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.x_train, again.x_train)
    assert len(one.x_train) != len(other.x_train)


def test_inputs_have_the_stated_covariance():
    x = load("synthetic", iid=True, workers=100).x_train
    assert x.var(axis=0) == pytest.approx(np.arange(1, 61) ** -1.2, rel=0.1)
    assert x.mean(axis=0) == pytest.approx(0, abs=0.05)


def test_beta_moves_the_inputs_and_iid_does_not():
    def spread(**options):
        data = load("synthetic", workers=50, **options)
        return np.std([data.x_train[part].mean() for part in by_role(data)])

    assert spread(iid=True) < 0.1 < spread(beta=0) < 0.5 < spread(beta=4)


def test_beta_is_the_variance_of_the_mean_inputs():
    data = load("synthetic", workers=300, beta=4)
    means = [data.x_train[part].mean() for part in by_role(data)]
    assert np.var(means) == pytest.approx(4, rel=0.1)


def test_alpha_changes_no_label():
    """Every class's score moves by u_k (sum of x + 1), so that the largest stays the largest."""
    plain, other = (load("synthetic", workers=5, alpha=alpha) for alpha in (0, 100))
    assert np.array_equal(plain.x_train, other.x_train)
    assert np.array_equal(plain.y_train, other.y_train)


def test_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match="alpha=-1"):
        load("synthetic", alpha=-1)
