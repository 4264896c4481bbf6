"""SCAFFOLD as a whole is compared with its paper in tests/core/rules/test_limits.py."""

import numpy as np
import pytest

from anarchic import Adam, ClipNorm, Momentum, Prox, Scaffold, Sgd
from anarchic.core.local import take_local_steps
from anarchic.errors import ConfigError

from .make import vector


def test_the_direction_of_sgd_is_the_gradient():
    gradient = vector(1.0, 2.0)
    assert Sgd().step(gradient, vector(5.0, 5.0), vector(0.0, 0.0), {}) is gradient
    assert Sgd().finish(gradient, {}) == ({}, {})


def test_prox_adds_a_pull_towards_the_start():
    direction = Prox(mu=0.5).step(vector(1.0), vector(7.0), vector(3.0), {})
    assert direction[0] == 3.0  # 1 + 0.5 * (7 - 3)


def test_prox_without_a_pull_is_sgd():
    around = vector(1.0, -2.0), vector(7.0, 0.1), vector(3.0, 0.2), {}
    assert Prox(mu=0.0).step(*around).tolist() == Sgd().step(*around).tolist()


@pytest.mark.parametrize("mu", [-0.1, float("nan")])
def test_mu_must_not_be_negative(mu):
    with pytest.raises(ConfigError, match="mu"):
        Prox(mu=mu)


def visit(rule, gradients, local_lr=0.1):
    """The directions of one visit, and where it ends."""
    held = {name: vector(0.0) for name in rule.scratch}
    x, directions = vector(3.0), []
    for gradient in gradients:
        direction = rule.step(vector(gradient), x, vector(3.0), held)
        x = x - local_lr * direction
        directions.append(float(direction[0]))
    return directions, x


def test_momentum_adds_up_within_a_visit():
    # 4, then 0.5 * 4 + 2, then 0.5 * 4 + 0
    assert visit(Momentum(beta=0.5), [4.0, 2.0, 0.0])[0] == [4.0, 4.0, 2.0]


def test_the_mean_direction_leads_from_the_start_to_the_end():
    directions, end = visit(Momentum(beta=0.5), [4.0, 2.0, 0.0])
    np.testing.assert_allclose(3.0 - 3 * 0.1 * np.mean(directions), end[0])


def test_momentum_without_memory_is_sgd():
    gradients = [4.0, 2.0, -1.0]
    assert visit(Momentum(beta=0.0), gradients) == visit(Sgd(), gradients)


def test_momentum_neither_keeps_nor_sends_anything():
    rule = Momentum()
    assert (rule.keeps, rule.shares) == ((), ())
    assert rule.finish(vector(1.0), {"velocity": vector(9.0)}) == ({}, {})


@pytest.mark.parametrize("beta", [-0.1, 1.0, float("nan")])
def test_beta_lies_between_0_and_1(beta):
    with pytest.raises(ConfigError, match="beta"):
        Momentum(beta=beta)


def test_scaffold_corrects_the_direction_by_the_controls():
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


def test_adam_by_hand():
    # t=1: m = 0.4, v = 0.016, so 4 / sqrt(16) = 1.
    # t=2: m = 0.36, v = 0.015984, so (0.36 / 0.19) / sqrt(0.015984 / 0.001999) = 0.67006.
    directions, _ = visit(Adam(), [4.0, 0.0])
    np.testing.assert_allclose(directions, [1.0, 0.67006], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_adam_is_that_of_torch(dtype):
    torch = pytest.importorskip("torch")
    gradients = np.random.default_rng(0).normal(size=(7, 5)).astype(dtype)
    theirs = torch.nn.Parameter(torch.zeros(5, dtype=getattr(torch, dtype)))
    optimizer = torch.optim.Adam([theirs], lr=0.01, betas=(0.8, 0.99), eps=1e-6)
    for gradient in gradients:
        theirs.grad = torch.tensor(gradient)
        optimizer.step()
    rule, start = Adam(beta1=0.8, beta2=0.99, epsilon=1e-6), np.zeros(5, dtype)
    found = take_local_steps(
        rule,
        start,
        dict.fromkeys(rule.scratch, start),
        lr=0.01,
        gradient=lambda x, k: gradients[k],
        more=lambda done: done < 7,
    )
    assert found.direction.dtype == dtype
    atol = {"float32": 1e-8, "float64": 1e-15}[dtype]  # of steps of 0.01
    end = -7 * 0.01 * found.direction
    np.testing.assert_allclose(end, theirs.detach().numpy(), rtol=0, atol=atol)


def test_two_visits_of_adam_that_keeps_its_state_are_one_long_visit():
    rule, gradients = Adam(keep_state=True), np.random.default_rng(0).normal(size=(6, 3))

    def walk(start, kept, first, last):
        return take_local_steps(
            rule,
            start,
            dict(kept),
            lr=0.1,
            gradient=lambda x, k: gradients[first + k],
            more=lambda done: first + done < last,
        )

    zero = dict.fromkeys(rule.keeps, np.zeros(3))
    whole = walk(np.ones(3), zero, 0, 6)
    one = walk(np.ones(3), zero, 0, 2)
    other = walk(np.ones(3) - 0.2 * one.direction, one.kept, 2, 6)
    np.testing.assert_allclose(0.2 * one.direction + 0.4 * other.direction, 0.6 * whole.direction)
    assert other.kept["adam_steps"].tolist() == [6.0] * 3
    assert not any(vector.any() for vector in zero.values())  # what was kept is not written to


def test_adam_forgets_unless_it_is_told_to_keep():
    assert (Adam().keeps, len(Adam().scratch)) == ((), 3)
    assert Adam().finish(vector(1.0), {}) == ({}, {})


@pytest.mark.parametrize("wrong", [{"beta1": 1.0}, {"beta2": -0.1}, {"epsilon": 0.0}])
def test_adam_refuses_what_cannot_be_right(wrong):
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))}="):
        Adam(**wrong)


LOCAL_RULES = [
    *(Sgd(), Prox(mu=0.5), Momentum(beta=0.5), Scaffold(), Scaffold(option=1)),
    *(ClipNorm(2.0), ClipNorm(2.0, Momentum(0.5))),
]


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


@pytest.mark.parametrize("rule", [Sgd(), Momentum(beta=0.5), Adam()])
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
