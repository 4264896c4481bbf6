"""Which way to the gradients is taken, and that each gives those of autograd."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from anarchic.core.types import Layout  # noqa: E402
from anarchic.models.cnn import Cnn  # noqa: E402
from anarchic.models.logistic import Logistic  # noqa: E402
from anarchic.models.lstm import Lstm  # noqa: E402
from anarchic.models.mlp import Mlp  # noqa: E402
from anarchic.train.engines import (  # noqa: E402
    Objective,
    choose_engine,
    cross_entropy,
)

CPU = torch.device("cpu")


def objective(module, loss=cross_entropy, dtype="F64"):
    module.to({"F64": torch.float64, "F32": torch.float32}[dtype])
    trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
    return Objective(module, loss, Layout.of({n: (p.shape, dtype) for n, p in trained.items()}))


def lanes(found, x, classes):
    """Parameters and labels for the inputs of two lanes."""
    torch.manual_seed(0)
    params = 0.2 * torch.randn(2, found.layout.dim, dtype=torch.float64)
    return params, x, torch.randint(classes, x.shape[:2])


def way(engine):
    return getattr(engine.function, "__name__", "kernel")


def frozen(module):
    next(module.parameters()).requires_grad_(False)
    return module


IMAGES, TOKENS = torch.randn(2, 3, 3, 16, 16).double(), torch.randint(80, (2, 3, 4)).byte()
FLAT = torch.randn(2, 3, 6).double()
CASES = {
    "mlp": (Mlp(6, 4), FLAT, 4, "all_at_once"),
    "logistic": (Logistic(6, 4), FLAT, 4, "lane_gradients"),
    "cnn": (Cnn(3, 16, 10), IMAGES, 10, "one_by_one"),
    "lstm": (Lstm(80), TOKENS, 80, "kernel"),
    "frozen lstm": (
        frozen(Lstm(80)),
        TOKENS,
        80,
        "all_at_once",
    ),  # the closed form is that of all tensors
}


@pytest.mark.parametrize("case", CASES)
def test_the_gradients_of_lanes_are_those_of_autograd(case):
    module, x, classes, expected = CASES[case]
    engine = choose_engine(objective(module), CPU, "ieee")
    assert way(engine) == expected
    params, x, y = lanes(engine.objective, x, classes)
    found = engine.function(params, x, y)
    for lane in range(2):
        alone = engine.objective.gradient(params[lane], x[lane], y[lane])
        torch.testing.assert_close(found[lane], alone, rtol=1e-10, atol=1e-12)


def test_a_closed_form_is_of_cross_entropy_alone():
    ours, other = objective(Logistic(6, 4)), objective(Logistic(6, 4), nn.functional.cross_entropy)
    assert way(choose_engine(ours, CPU, "ieee")) == "lane_gradients"
    assert way(choose_engine(other, CPU, "ieee")) == "all_at_once"


def test_threads_have_copies_of_a_module_and_leave_it_alone():
    engine = choose_engine(objective(Cnn(3, 16, 10)), CPU, "ieee")
    before = {name: tensor.clone() for name, tensor in engine.objective.module.state_dict().items()}
    engine.function(*lanes(engine.objective, IMAGES, 10))
    after = engine.objective.module.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert engine.max_lanes == 1
    assert engine.threads == torch.get_num_threads()
