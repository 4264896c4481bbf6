"""The whole algorithm is compared with its paper in tests/core/rules/test_limits.py."""

import numpy as np
import pytest

from anarchic import Momentum, Prox, Scaffold, Sgd
from anarchic.errors import ConfigError

from ..make import vector


def test_the_direction_is_corrected_by_the_controls():
    held = {"own_control": vector(1.0), "control": vector(4.0)}
    direction = Scaffold().step(vector(10.0), vector(0.0), vector(0.0), held)
    assert direction[0] == 13.0  # 10 - 1 + 4


def test_the_new_control_is_that_of_option_ii():
    held = {"own_control": vector(1.0), "control": vector(4.0)}
    keep, send = Scaffold().finish(vector(13.0), held)
    assert keep["own_control"][0] == 10.0  # 1 - 4 + 13
    assert send["control"][0] == 9.0  # 10 - 1
    assert (held["own_control"][0], held["control"][0]) == (1.0, 4.0)


def test_option_i_keeps_the_gradient_of_the_first_step():
    rule, start = Scaffold(option=1), vector(7.0)
    held = {"own_control": vector(1.0), "control": vector(4.0), "at_start": vector(0.0)}
    assert rule.step(vector(10.0), start, start, held)[0] == 13.0
    assert rule.step(vector(20.0), vector(5.7), start, held)[0] == 23.0
    keep, send = rule.finish(vector(18.0), held)
    assert keep["own_control"][0] == 10.0
    assert send["control"][0] == 9.0


def test_lanes_have_first_steps_of_their_own():
    rule, start = Scaffold(option=1), np.array([[1.0, 2.0], [3.0, 4.0]])
    zero = np.zeros((2, 2))
    held = {"own_control": zero, "control": zero, "at_start": zero}
    x = np.array([[1.0, 2.0], [3.0, 9.0]])  # the second lane has moved, in one place only
    rule.step(np.ones((2, 2)), x, start, held)
    assert held["at_start"].tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_there_are_two_options():
    with pytest.raises(ConfigError, match="options 1 and 2, got option=3"):
        Scaffold(option=3)


LOCAL_RULES = [Sgd(), Prox(mu=0.5), Momentum(beta=0.5), Scaffold(), Scaffold(option=1)]


@pytest.mark.parametrize("rule", LOCAL_RULES, ids=repr)
def test_every_local_rule_takes_torch_tensors_of_lanes(rule):
    torch = pytest.importorskip("torch")
    lanes = torch.arange(6.0).reshape(2, 3)
    held = dict.fromkeys((*rule.keeps, *rule.shares, *rule.scratch), lanes + 1)
    arrays = {name: tensor.numpy() for name, tensor in held.items()}
    together = rule.step(lanes, lanes * 2, lanes - 1, held)
    one = rule.step(*((lanes * f + c).numpy() for f, c in ((1, 0), (2, 0), (1, -1))), arrays)
    assert together.numpy().tolist() == one.tolist()
    kept, sent = rule.finish(lanes, held)
    assert set(kept) == set(rule.keeps)
    assert set(sent) == set(rule.shares)
