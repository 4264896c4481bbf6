import numpy as np
import pytest

from anarchic import Momentum, Scaffold, Sgd
from anarchic.core.local.visit import take_local_steps

START = np.zeros(2, np.float32)


def towards(target):
    """The gradient of half the squared distance."""
    return lambda x, k: x - np.asarray(target, x.dtype)


def test_sgd_by_hand():
    found = take_local_steps(
        Sgd(), START, {}, lr=0.5, gradient=towards([4, 8]), more=lambda done: done < 2
    )
    # x: 0 -> 2 -> 3 and 0 -> 4 -> 6
    assert found.direction.tolist() == [-3.0, -6.0]
    assert (found.local_steps, found.kept, found.sent) == (2, {}, {})
    assert START.tolist() == [0.0, 0.0]


def test_at_least_one_step_is_taken_and_steps_are_numbered():
    numbers = []

    def gradient(x, k):
        numbers.append(k)
        return x

    take_local_steps(Sgd(), START, {}, lr=0.5, gradient=gradient, more=lambda done: False)
    assert numbers == [0]
    take_local_steps(Sgd(), START, {}, lr=0.5, gradient=gradient, more=lambda done: done < 3)
    assert numbers == [0, 0, 1, 2]


def test_a_rule_keeps_and_sends_its_vectors():
    held = {"own_control": START + 1, "control": START + 2}
    found = take_local_steps(
        Scaffold(), START, held, lr=0.5, gradient=towards([1, 1]), more=lambda done: False
    )
    assert found.direction.tolist() == [0.0, 0.0]  # -1 - 1 + 2
    assert found.sent["control"].tolist() == [-2.0, -2.0]  # G - c
    assert found.kept["own_control"].tolist() == [-1.0, -1.0]  # c_i - c + G


@pytest.mark.parametrize("rule", [Sgd(), Momentum(beta=0.5)])
def test_tensors_and_arrays_give_the_same(rule):
    torch = pytest.importorskip("torch")
    held = dict.fromkeys(rule.scratch, START)
    ours = take_local_steps(
        rule, START, held, lr=0.25, gradient=lambda x, k: x - 1, more=lambda done: done < 5
    )
    theirs = take_local_steps(
        rule,
        torch.zeros(2),
        {name: torch.zeros(2) for name in rule.scratch},
        lr=0.25,
        gradient=lambda x, k: x - 1,
        more=lambda done: done < 5,
    )
    assert theirs.direction.tolist() == ours.direction.tolist()
