from __future__ import annotations

import numpy as np
import pytest

from anarchic.core import registry
from anarchic.data import Dataset, load
from anarchic.errors import ConfigError
from anarchic.models import make
from anarchic.models.softmax import lane_gradients

torch = pytest.importorskip("torch")


def images(channels, size):
    x = np.zeros((4, channels, size, size), np.float32)
    y = np.zeros(4, np.int64)
    return Dataset("images", x, y, x, y, 10)


def text():
    x = np.arange(4 * 80).reshape(4, 80).astype(np.uint8) % 80
    y = np.zeros(4, np.int64)
    return Dataset("text", x, y, x, y, 80)


@pytest.mark.parametrize(
    ("name", "data", "size"),
    [
        ("logistic", images(1, 28), 784 * 10 + 10),
        ("mlp", images(1, 28), 784 * 128 + 128 + 128 * 10 + 10),
        # The paper's table: 5x5x32, 5x5x64, 1024 x 512 for 28x28 inputs, 512 x 128, 128 x 10.
        (
            "cnn",
            images(3, 28),
            3 * 25 * 32 + 32 + 32 * 25 * 64 + 64 + 1024 * 512 + 512 + 512 * 128 + 128 + 1290,
        ),
        (
            "cnn",
            images(3, 32),
            3 * 25 * 32 + 32 + 32 * 25 * 64 + 64 + 1600 * 512 + 512 + 512 * 128 + 128 + 1290,
        ),
        # Embedding 80 x 8, two layers of 100 units with two biases each, dense 100 x 80.
        (
            "lstm",
            text(),
            80 * 8 + 400 * (8 + 100 + 2) + 400 * (100 + 100 + 2) + 100 * 80 + 80,
        ),
    ],
)
def test_a_model_has_the_paper_s_parameters(name, data, size):
    model = make(name, data)
    assert sum(p.numel() for p in model.parameters()) == size
    inputs = torch.from_numpy(data.x_train)
    outputs = model(inputs.long() if name == "lstm" else inputs)
    assert outputs.shape == (4, data.classes)


def test_the_same_seed_makes_the_same_model_and_leaves_torch_alone():
    before = torch.get_rng_state()
    one, two, other = (make("mlp", images(1, 8), seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.dense1.weight, two.dense1.weight)
    assert not torch.equal(one.dense1.weight, other.dense1.weight)
    assert torch.equal(torch.get_rng_state(), before)


def test_lstm_computes_what_torch_s_own_computes():
    model = make("lstm", text()).double()
    own = torch.nn.LSTM(8, 100, num_layers=2, batch_first=True).double()
    own.load_state_dict(model.lstm.state_dict())  # names and shapes are the same
    tokens = torch.from_numpy(text().x_train).long()
    states, _ = own(model.embedding(tokens))
    expected = model.dense(states[:, -1])
    torch.testing.assert_close(model(tokens), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_the_closed_form_of_logistic_is_its_gradient(kind):
    generator = torch.Generator().manual_seed(0)
    params = torch.randn(2, 100, generator=generator, dtype=torch.float64)
    x = torch.randn(2, 5, 1, 3, 3, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 10, (2, 5), generator=generator)
    given = (params, x, y) if kind == "torch" else (params.numpy(), x.numpy(), y.numpy())
    found = torch.as_tensor(lane_gradients(*given, 10))
    for lane in range(2):
        bias, weight = (params[lane, :10].clone(), params[lane, 10:].reshape(10, 9).clone())
        bias.requires_grad_()
        weight.requires_grad_()
        outputs = x[lane].flatten(1) @ weight.T + bias
        loss = torch.nn.functional.cross_entropy(outputs, y[lane])
        expected = torch.autograd.grad(loss, (bias, weight))
        flat = torch.cat([g.reshape(-1) for g in expected])
        torch.testing.assert_close(found[lane], flat, rtol=1e-12, atol=1e-14)


def test_the_closed_form_survives_huge_outputs():
    params = np.full((1, 100), 1e4, np.float32)
    params[0, 0] = -1e4
    x, y = np.full((1, 2, 9), 1e3, np.float32), np.zeros((1, 2), np.int64)
    assert np.isfinite(lane_gradients(params, x, y, 10)).all()


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("resnet", images(1, 8), "no model 'resnet'; there are logistic"),
        ("cnn", images(1, 8), "16x16 or more, got 8x8"),
        ("lstm", images(1, 8), "does not go with images"),
        ("mlp", text(), "use lstm"),
        ("cnn", load("synthetic"), "square images"),
    ],
)
def test_a_model_that_does_not_fit_says_why(name, data, says):
    with pytest.raises(ConfigError, match=says):
        make(name, data)


def test_every_model_is_listed_and_can_be_made():
    for name in registry.KINDS["models"].built_in:
        model = make(name, text() if name == "lstm" else images(3, 32))
        assert type(model).__name__.lower() == name


def alone():
    return torch.nn.Linear(4, 2)


def of_data(data):
    return torch.nn.Linear(data.x_train[0].size, data.classes)


def of_two(one, other):
    return torch.nn.Linear(one, other)


@pytest.mark.parametrize(("name", "shape"), [("alone", (2, 4)), ("of_data", (10, 64))])
def test_a_model_from_elsewhere_is_called_with_the_data_if_it_needs_them(name, shape):
    assert make(f"{__name__}:{name}", images(1, 8)).weight.shape == shape


def test_a_model_that_needs_more_than_the_data_is_refused():
    with pytest.raises(ConfigError, match=r"of_two' takes \(one, other\), and is called with"):
        make(f"{__name__}:of_two", images(1, 8))
