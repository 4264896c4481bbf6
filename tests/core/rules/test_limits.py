"""Where two algorithms are the same one, written out and compared."""

from dataclasses import replace

import numpy as np
import pytest

from anarchic import AfaCd, AfaCs, FedAsync, FedAvg, FedBuff, Scaffold, SharedVectors, Update

from ..make import fold
from .cases import Case, stream

DIM = 6


def begin():
    return np.linspace(-1, 1, DIM)


def quadratics(workers, seed=0):
    """Gradients a_i * (x - b_i) of N workers."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(0.5, 1.5, (workers, DIM)), rng.normal(size=(workers, DIM))
    return [lambda x, i=i: a[i] * (x - b[i]) for i in range(workers)]


def local_sgd(gradient, x, steps, local_lr):
    """The model that a worker ends with, and its mean gradient."""
    total = np.zeros_like(x)
    for _ in range(steps):
        g = gradient(x)
        x, total = x - local_lr * g, total + g
    return x, total / steps


def test_afa_cd_with_nobody_late_and_server_lr_k_is_fedavg():
    K, local_lr, gradients = 4, 0.1, quadratics(3)
    rule = AfaCd(m=3, server_lr=K)
    state, x = rule.init(begin()), begin()
    for version in range(20):
        pulled, ends = state.params, []
        for i, gradient in enumerate(gradients):
            mean = local_sgd(gradient, pulled, K, local_lr)[1]
            state = rule.receive(state, Update(str(i), version, K, local_lr, mean))
            ends.append(local_sgd(gradient, x, K, local_lr)[0])
        x = np.mean(ends, axis=0)  # McMahan et al.: the mean of the workers' models
        np.testing.assert_allclose(state.params, x, rtol=1e-12)


def test_afa_cd_with_server_lr_k_is_our_fedavg_too():
    """Exactly: K is a power of two, so that moving it out of the sum rounds nothing."""
    K = 4
    updates = [replace(u, local_steps=K) for u in stream(Case("", AfaCd(m=3), fresh=True), 9)]
    cd, avg = AfaCd(m=3, server_lr=K), FedAvg(m=3)
    begin32 = np.ones(5, np.float32)
    ours = fold(cd, cd.init(begin32), updates).params
    assert ours.tobytes() == fold(avg, avg.init(begin32), updates).params.tobytes()


def test_afa_cs_where_all_report_is_afa_cd():
    """Every row is replaced in every round: the memory holds what the buffer would."""
    gradients = quadratics(4)
    cs, cd = AfaCs(m=4), AfaCd(m=4)
    with_memory, without = cs.init(begin()), cd.init(begin())
    for version in range(20):
        for i, gradient in enumerate(gradients):
            for rule, state in ((cs, with_memory), (cd, without)):
                mean = local_sgd(gradient, state.params, i + 1, 0.1)[1]
                rule.receive(state, Update(str(i), version, i + 1, 0.1, mean))
        np.testing.assert_allclose(with_memory.params, without.params, rtol=1e-12)


def test_afa_cs_with_one_update_a_step_and_one_local_step_is_sag():
    M, local_lr, gradients = 5, 0.1, quadratics(5)
    rule = AfaCs(m=1, population=M)
    state = rule.init(begin())
    # Schmidt, Le Roux, Bach 2017, Algorithm 1: d is the sum of the table y
    x, d, y = begin(), np.zeros(DIM), np.zeros((M, DIM))
    for version, i in enumerate(np.random.default_rng(0).integers(0, M, 100).tolist()):
        gradient = gradients[i](state.params)
        state = rule.receive(state, Update(str(i), version, 1, local_lr, gradient))
        d -= y[i]
        y[i] = gradients[i](x)
        d += y[i]
        x = x - local_lr / M * d
        np.testing.assert_allclose(state.params, x, rtol=1e-10)


def test_afa_cd_with_one_update_a_step_and_one_local_step_is_asynchronous_sgd():
    gradients, rng = quadratics(3), np.random.default_rng(0)
    rule = AfaCd(m=1, server_lr=2.0)
    state, past = rule.init(begin()), [begin()]
    for version in range(50):
        i, base = int(rng.integers(3)), int(rng.integers(max(0, version - 4), version + 1))
        gradient = gradients[i](past[base])
        state = rule.receive(state, Update(str(i), base, 1, 0.05, gradient))
        past.append(past[-1] - 2.0 * 0.05 * gradient)  # whatever version the gradient is of
        np.testing.assert_allclose(state.params, past[-1], rtol=1e-12)


@pytest.mark.parametrize("K", [1, 4])
def test_fedbuff_that_forgives_lateness_is_afa_cd_with_k_times_the_rate(K):
    updates = [replace(u, local_steps=K) for u in stream(Case("", AfaCd(m=3)), 12)]
    buff, cd = FedBuff(m=3, power=0.0), AfaCd(m=3, server_lr=K)
    begin32 = np.ones(5, np.float32)
    ours = fold(buff, buff.init(begin32), updates).params
    assert ours.tobytes() == fold(cd, cd.init(begin32), updates).params.tobytes()


def test_fedasync_that_mixes_fully_takes_the_workers_model():
    rule, K, local_lr = FedAsync(mixing=1.0, power=0.0), 3, 0.1
    state = rule.init(begin())
    for version, gradient in enumerate(quadratics(4) * 3):
        end, mean = local_sgd(gradient, state.params, K, local_lr)
        state = rule.receive(state, Update("w", version, K, local_lr, mean))
        np.testing.assert_allclose(state.params, end, rtol=1e-12)


def test_fedasync_with_fresh_updates_is_afa_cd_of_one():
    updates = [replace(u, local_steps=1) for u in stream(Case("", AfaCd(m=1), fresh=True), 9)]
    mixed, cd = FedAsync(mixing=0.5), AfaCd(m=1, server_lr=0.5)
    begin32 = np.ones(5, np.float32)
    np.testing.assert_allclose(
        fold(mixed, mixed.init(begin32), updates).params,
        fold(cd, cd.init(begin32), updates).params,
        rtol=1e-6,
    )


@pytest.mark.parametrize("participants", [5, 2])
def test_scaffold_is_algorithm_1_with_option_ii(participants):
    N, K, local_lr, server_lr, gradients = 5, 3, 0.1, 1.0, quadratics(5)
    # Ours: a local rule at the worker, SharedVectors around FedAvg at the server.
    local = Scaffold()
    rule = SharedVectors(FedAvg(m=participants, server_lr=server_lr), ("control",), population=N)
    state = rule.init(begin())
    kept = [np.zeros(DIM) for _ in range(N)]
    # Karimireddy et al., Algorithm 1.
    x, c, c_i = begin(), np.zeros(DIM), np.zeros((N, DIM))

    rng = np.random.default_rng(0)
    for version in range(30):
        sampled = rng.choice(N, participants, replace=False).tolist()
        pulled, control = state.params, state.extras["control"]
        for i in sampled:
            held = {"control": control, "own_control": kept[i]}
            y, total = pulled, np.zeros(DIM)
            for _ in range(K):
                direction = local.step(gradients[i](y), y, pulled, held)
                y, total = y - local_lr * direction, total + direction
            keep, send = local.finish(total / K, held)
            kept[i] = keep["own_control"]
            state = rule.receive(
                state, Update(str(i), version, K, local_lr, total / K, extras=send)
            )

        dx, dc = np.zeros(DIM), np.zeros(DIM)
        for i in sampled:
            y_i = x
            for _ in range(K):
                y_i = y_i - local_lr * (gradients[i](y_i) - c_i[i] + c)
            c_plus = c_i[i] - c + (x - y_i) / (K * local_lr)
            dx, dc = dx + (y_i - x), dc + (c_plus - c_i[i])
            c_i[i] = c_plus
        x = x + server_lr / participants * dx
        c = c + dc / N  # |S|/N times the mean over S

        np.testing.assert_allclose(state.params, x, rtol=1e-9)
        np.testing.assert_allclose(state.extras["control"], c, rtol=1e-9, atol=1e-12)
