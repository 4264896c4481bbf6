import numpy as np
import pytest

from anarchic.data import Quadratics, random_quadratics
from anarchic.errors import ConfigError


def test_two_parabolas_by_hand():
    # f_0 = (x - 1)^2 / 2 and f_1 = 3 (x - 5)^2 / 2: the mean is least at (1 + 15) / 4 = 4
    pair = Quadratics(np.array([[1.0], [3.0]]), np.array([[1.0], [5.0]]))
    assert pair.optimum() == pytest.approx([4.0])
    assert pair.loss(np.array([4.0])) == pytest.approx((4.5 + 1.5) / 2)
    assert pair.gradient(np.array([4.0]), 0) == pytest.approx([3.0])
    assert pair.gradient(np.array([4.0]), 1) == pytest.approx([-3.0])


def test_diagonals_and_matrices_agree():
    rng = np.random.default_rng(0)
    diagonals, optima, x = rng.uniform(1, 2, (3, 4)), rng.normal(size=(3, 4)), rng.normal(size=4)
    short = Quadratics(diagonals, optima)
    full = Quadratics(np.stack([np.diag(row) for row in diagonals]), optima)
    assert short.loss(x) == pytest.approx(full.loss(x))
    assert short.optimum() == pytest.approx(full.optimum())
    assert short.gradient(x, 2) == pytest.approx(full.gradient(x, 2))


def test_random_ones_have_the_stated_curvature_and_optimum():
    some = random_quadratics(6, 5, heterogeneity=2.0, condition=50.0, seed=1)
    curvatures = np.linalg.eigvalsh(some.hessians)
    assert curvatures.max(axis=1) == pytest.approx(1.0)
    assert curvatures.min(axis=1) == pytest.approx(1 / 50)
    best = some.optimum()
    mean = sum(some.gradient(best, worker) for worker in range(some.workers))
    assert mean == pytest.approx(np.zeros(5), abs=1e-12)
    assert some.loss(best) < some.loss(best + 0.1)
    assert np.array_equal(some.optima, random_quadratics(6, 5, heterogeneity=2.0, seed=1).optima)


def test_wrong_shapes_and_settings_are_refused():
    with pytest.raises(ConfigError, match=r"\(2, 3\) and \(2, 4\)"):
        Quadratics(np.ones((2, 4)), np.ones((2, 3)))
    with pytest.raises(ConfigError, match="noise=-1"):
        Quadratics(np.ones((2, 3)), np.ones((2, 3)), noise=-1)
    with pytest.raises(ConfigError, match=r"condition=0\.5"):
        random_quadratics(2, 3, condition=0.5)
