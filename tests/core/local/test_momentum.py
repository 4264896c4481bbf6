import numpy as np
import pytest

from anarchic import Momentum, Sgd
from anarchic.errors import ConfigError

from ..make import vector


def visit(rule, gradients, local_lr=0.1):
    """The directions of one visit, and where it ends."""
    held = {name: vector(0.0) for name in rule.scratch}
    x, directions = vector(3.0), []
    for gradient in gradients:
        direction = rule.step(vector(gradient), x, vector(3.0), held)
        x = x - local_lr * direction
        directions.append(float(direction[0]))
    return directions, x


def test_velocity_adds_up_within_a_visit():
    # 4, then 0.5 * 4 + 2, then 0.5 * 4 + 0
    assert visit(Momentum(beta=0.5), [4.0, 2.0, 0.0])[0] == [4.0, 4.0, 2.0]


def test_the_mean_direction_leads_from_the_start_to_the_end():
    directions, end = visit(Momentum(beta=0.5), [4.0, 2.0, 0.0])
    np.testing.assert_allclose(3.0 - 3 * 0.1 * np.mean(directions), end[0])


def test_without_memory_it_is_sgd():
    gradients = [4.0, 2.0, -1.0]
    assert visit(Momentum(beta=0.0), gradients) == visit(Sgd(), gradients)


def test_it_neither_keeps_nor_sends_anything():
    rule = Momentum()
    assert (rule.keeps, rule.shares) == ((), ())
    assert rule.finish(vector(1.0), {"velocity": vector(9.0)}) == ({}, {})


@pytest.mark.parametrize("beta", [-0.1, 1.0, float("nan")])
def test_beta_lies_between_0_and_1(beta):
    with pytest.raises(ConfigError, match="beta"):
        Momentum(beta=beta)
