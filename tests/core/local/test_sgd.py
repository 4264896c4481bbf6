from anarchic import Sgd

from ..make import vector


def test_the_direction_is_the_gradient():
    gradient = vector(1.0, 2.0)
    assert Sgd().step(gradient, vector(5.0, 5.0), vector(0.0, 0.0), {}) is gradient
    assert Sgd().finish(gradient, {}) == ({}, {})
