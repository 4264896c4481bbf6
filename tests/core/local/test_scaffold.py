"""The whole algorithm is compared with its paper in tests/core/rules/test_limits.py."""

import pytest

from anarchic import Momentum, Prox, Scaffold, Sgd

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


@pytest.mark.parametrize("rule", [Sgd(), Prox(mu=0.5), Momentum(beta=0.5), Scaffold()], ids=repr)
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
