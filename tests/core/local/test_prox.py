import pytest

from anarchic import Prox, Sgd
from anarchic.errors import ConfigError

from ..make import vector


def test_the_pull_towards_the_start_is_added():
    direction = Prox(mu=0.5).step(vector(1.0), vector(7.0), vector(3.0), {})
    assert direction[0] == 3.0  # 1 + 0.5 * (7 - 3)


def test_without_a_pull_it_is_sgd():
    around = vector(1.0, -2.0), vector(7.0, 0.1), vector(3.0, 0.2), {}
    assert Prox(mu=0.0).step(*around).tolist() == Sgd().step(*around).tolist()


@pytest.mark.parametrize("mu", [-0.1, float("nan")])
def test_mu_must_not_be_negative(mu):
    with pytest.raises(ConfigError, match="mu"):
        Prox(mu=mu)
