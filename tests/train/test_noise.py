"""Random operators of torch, by keys: alike alone and in lanes, with the right distributions."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.func import vmap  # noqa: E402
from torch.nn import functional  # noqa: E402

from anarchic.errors import ConfigError  # noqa: E402
from anarchic.train.draws import Draws  # noqa: E402
from anarchic.train.noise import CannotBatch, Noise, random_bits, step_keys  # noqa: E402

KEYS = torch.tensor([5, -7, 1 << 40])
X = torch.ones(3, 4, 50)

BATCHED = {
    "dropout": lambda x: functional.dropout(x, 0.3),
    "dropout twice": lambda x: functional.dropout(functional.dropout(x, 0.3), 0.3),
    "dropout of channels": lambda x: functional.dropout1d(x, 0.3),
    "alpha dropout": lambda x: functional.alpha_dropout(x, 0.3, training=True),
    "bernoulli of tensors": lambda x: torch.bernoulli(0.3 * x),
    "rand": lambda x: x + torch.rand(x.shape),
    "rand_like": lambda x: torch.rand_like(x),
    "randn": lambda x: x + torch.randn(4, 50),
    "randint": lambda x: x + torch.randint(2, 9, x.shape),
    "normal": lambda x: x + torch.normal(1.0, 2.0, x.shape),
    "gumbel": lambda x: functional.gumbel_softmax(x),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
}
ALONE = {
    "permutation": lambda x: x + torch.randperm(50),
    "multinomial": lambda x: torch.multinomial(x, 3) + 0.0,
    "rrelu": lambda x: functional.rrelu(-x, training=True),
    "poisson": torch.poisson,
}


def alone(function, key):
    with Noise(key):
        return function(X[0])


@pytest.mark.parametrize("name", BATCHED)
def test_lanes_draw_what_each_of_them_draws_alone(name):
    function = BATCHED[name]
    with Noise(KEYS):
        found = vmap(function, randomness="different")(X)
    for lane, key in zip(found, KEYS, strict=True):
        torch.testing.assert_close(lane, alone(function, key), rtol=1e-6, atol=1e-7)
    assert not torch.equal(found[0], found[1])


def test_masks_are_the_same_bytes():
    with Noise(KEYS):
        found = vmap(lambda x: functional.dropout(x, 0.5), randomness="different")(X)
    each = torch.stack([alone(lambda x: functional.dropout(x, 0.5), key) for key in KEYS])
    assert found.numpy().tobytes() == each.numpy().tobytes()


@pytest.mark.parametrize("name", ALONE)
def test_what_lanes_cannot_share_is_drawn_alone(name):
    function = ALONE[name]
    assert torch.equal(alone(function, KEYS[0]), alone(function, KEYS[0]))
    assert not torch.equal(alone(function, KEYS[0]), alone(function, KEYS[1]))
    if name != "rrelu":  # vmap itself refuses that one
        with Noise(KEYS), pytest.raises(CannotBatch):
            vmap(function, randomness="different")(X)


@pytest.mark.parametrize("name", [*BATCHED, *ALONE])
def test_no_generator_outside_is_touched(name):
    before = torch.get_rng_state()
    alone((BATCHED | ALONE)[name], KEYS[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_the_module_s_own_operators_and_numbers_of_lstm():
    lstm = nn.LSTM(4, 5, num_layers=2, dropout=0.5)
    x = torch.randn(3, 2, 4)
    with Noise(KEYS[0]) as seen:
        first = lstm(x)[0]
    with Noise(KEYS[0]):
        again = lstm(x)[0]
    assert seen.drawn == 1
    assert torch.equal(first, again)


def mean_and_spread(function, size=200_000):
    with Noise(torch.tensor(1)):
        found = function(torch.ones(size)).double()
    return found.mean().item(), found.std().item()


@pytest.mark.parametrize(
    ("function", "mean", "spread"),
    [
        (lambda x: functional.dropout(x, 0.2), 1.0, 0.5),  # 0 or 1.25
        (torch.rand_like, 0.5, 12**-0.5),
        (lambda x: x.clone().uniform_(2, 5), 3.5, 3 * 12**-0.5),
        (torch.randn_like, 0.0, 1.0),
        (lambda x: torch.normal(2 * x, 3.0), 2.0, 3.0),
        (lambda x: x.clone().exponential_(0.5), 2.0, 2.0),
        (lambda x: torch.randint(1, 5, x.shape), 2.5, (15 / 12) ** 0.5),
        (lambda x: torch.bernoulli(0.1 * x), 0.1, 0.3),
    ],
)
def test_distributions_are_those_of_torch(function, mean, spread):
    found = mean_and_spread(function)
    assert found == pytest.approx((mean, spread), abs=0.02)


def test_words_are_uniform_and_do_not_depend_on_how_many_are_drawn():
    words = random_bits(KEYS, 1, 4096)
    assert torch.equal(random_bits(KEYS, 1, 100), words[:, :100])
    assert torch.equal(random_bits(KEYS[1], 1, 4096), words[1])
    assert len(set(words.reshape(-1).tolist())) == words.numel()
    ones = sum(((words >> bit) & 1).double().mean() for bit in range(64)) / 64
    assert ones == pytest.approx(0.5, abs=0.005)
    other = random_bits(KEYS, 2, 4096)
    assert not (words == other).any()


def test_keys_of_steps_differ_and_depend_on_all_that_a_visit_is():
    keys = step_keys(Draws(3, np.array([0, 1, 0]), np.array([0, 0, 1]), 5))
    assert keys.shape == (3, 5)
    assert len(set(keys.reshape(-1).tolist())) == 15
    again = step_keys(Draws(3, np.array([1]), np.array([0]), 2))
    assert again.tolist() == keys[1:2, :2].tolist()


def test_drawing_while_gradients_are_computed_is_refused():
    """A recomputed layer would drop others than the first time."""
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(4, requires_grad=True)

    def dropped(z):
        return functional.dropout(z, 0.5) ** 2

    with Noise(KEYS[0]):
        found = checkpoint(dropped, x, use_reentrant=False, preserve_rng_state=False).sum()
        with pytest.raises(ConfigError, match="gradient checkpointing"):
            found.backward()
