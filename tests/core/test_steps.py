"""The server steps against Reddi et al., Algorithm 2, transcribed."""

import tracemalloc

import numpy as np
import pytest

from anarchic import AdamStep, AfaCd, MomentumStep, SgdStep, YogiStep
from anarchic.core.rules.buffer import BufferState
from anarchic.core.steps import stepped
from anarchic.errors import ConfigError
from anarchic.kernels.chunks import CHUNK

from .make import update, vector


def changes(step, means, server_lr):
    """What each of a sequence of means makes the server subtract."""
    moments = step.init(vector(0.0))
    return [float(step.change(vector(mean), server_lr, moments)[0]) for mean in means]


def test_sgd_steps_by_the_rate_times_the_mean():
    assert changes(SgdStep(), [2.0, 4.0], server_lr=0.5) == [1.0, 2.0]


def test_momentum_adds_up():
    # v = 4, then 0.5 * 4 + 2 = 4, then 0.5 * 4 + 0 = 2
    assert changes(MomentumStep(beta=0.5), [4.0, 2.0, 0.0], server_lr=0.5) == [2.0, 2.0, 1.0]


def test_momentum_without_memory_is_sgd():
    means = np.random.default_rng(0).normal(size=10).tolist()
    assert changes(MomentumStep(beta=0.0), means, 0.1) == changes(SgdStep(), means, 0.1)


def test_adam_by_hand():
    # first moment 0.5 * 4 = 2; second 0.75 * 1 + 0.25 * 16 = 4.75, eps^2 being 1
    step = AdamStep(beta1=0.5, beta2=0.75, epsilon=1.0)
    assert changes(step, [4.0], server_lr=1.0) == [2 / (np.sqrt(4.75) + 1)]


def test_yogi_by_hand():
    # second moment 1 - 0.25 * 16 * sign(1 - 16) = 5
    step = YogiStep(beta1=0.5, beta2=0.75, epsilon=1.0)
    assert changes(step, [4.0], server_lr=1.0) == [2 / (np.sqrt(5.0) + 1)]


def fedadam(v, delta, beta2):
    return beta2 * v + (1 - beta2) * delta**2


def fedyogi(v, delta, beta2):
    return v - (1 - beta2) * delta**2 * np.sign(v - delta**2)


@pytest.mark.parametrize(("step", "second"), [(AdamStep, fedadam), (YogiStep, fedyogi)])
def test_adaptive_steps_follow_algorithm_2(step, second):
    """There Delta points downhill and is added; ours is a gradient and is subtracted."""
    beta1, beta2, tau, eta = 0.8, 0.9, 0.01, 0.1
    rule = AfaCd(m=1, server_lr=eta, step=step(beta1, beta2, tau))
    x = np.linspace(-1, 1, 4)
    state = rule.init(x)
    m, v = np.zeros(4), np.full(4, tau**2)
    rng = np.random.default_rng(0)
    for _ in range(30):
        g = rng.normal(size=4) * 10.0 ** rng.integers(-3, 2)
        state = rule.receive(state, update(g))
        delta = -g
        m = beta1 * m + (1 - beta1) * delta
        v = second(v, delta, beta2)
        x = x + eta * m / (np.sqrt(v) + tau)
        np.testing.assert_allclose(state.params, x, rtol=1e-12)
        np.testing.assert_allclose(state.moments["second"], v, rtol=1e-12)


@pytest.mark.parametrize("step", [SgdStep(), MomentumStep(), AdamStep(), YogiStep()])
def test_a_change_is_neither_the_mean_nor_a_moment(step):
    """The rule reuses the one, the step the other."""
    mean = vector(1.0, 2.0)
    moments = step.init(mean)
    change = step.change(mean, 1.0, moments)
    assert mean.tolist() == [1.0, 2.0]
    assert not any(np.shares_memory(change, other) for other in (mean, *moments.values()))


def test_numpy_settings_do_not_widen_the_model():
    rule = AfaCd(m=1, step=AdamStep(epsilon=np.float64(1e-3)))
    state = rule.receive(rule.init(vector(1.0, dtype="f4")), update([1.0], dtype="f4"))
    assert state.params.dtype == np.float32


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_decays_lie_between_0_and_1(value):
    for make in (MomentumStep, AdamStep, YogiStep, lambda b: AdamStep(0.9, b)):
        with pytest.raises(ConfigError, match="beta"):
            make(value)


@pytest.mark.parametrize("step", [AdamStep, YogiStep])
def test_epsilon_is_positive(step):
    with pytest.raises(ConfigError, match="epsilon"):
        step(epsilon=0.0)


@pytest.mark.parametrize("step", [SgdStep(), MomentumStep(), AdamStep(), YogiStep()])
def test_a_large_model_steps_piece_by_piece_to_the_same_numbers(step):
    dim = CHUNK + 3
    total = np.random.default_rng(0).standard_normal(dim, np.float32)
    params = np.ones(dim, np.float32)
    state = BufferState(params, 0, total.copy(), 4.0, 4, step.init(params))
    moments = step.init(params)
    for _ in range(2):
        found = stepped(params, state.total, state.moments, 4.0, step, 0.1, clear=False)
        expected = params - step.change(total / np.float32(4), 0.1, moments)
        assert found.tobytes() == expected.tobytes()
    assert all(moments[name].tobytes() == state.moments[name].tobytes() for name in moments)
    assert (params == 1).all()


@pytest.mark.parametrize("clear", [False, True])
def test_the_sum_is_cleared_if_that_is_asked_for(clear):
    total = np.arange(CHUNK + 3.0)
    zero = np.zeros(CHUNK + 3)
    found = stepped(zero, total, {}, 2.0, SgdStep(), 1.0, clear=clear)
    assert found[-1] == -(CHUNK + 2) / 2
    assert total[-1] == (0 if clear else CHUNK + 2)


def test_a_step_makes_nothing_large_but_the_new_parameters():
    dim = 1 << 21
    rule = AfaCd(m=2, step=AdamStep())
    state = rule.receive(rule.init(np.ones(dim)), update(np.ones(dim)))
    tracemalloc.start()
    try:
        rule.flush(state)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * 8 * dim, f"{peak} bytes for a model of {8 * dim}"
