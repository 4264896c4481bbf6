from __future__ import annotations

import math

import pytest

from anarchic.errors import ConfigError

torch = pytest.importorskip("torch")

from anarchic.kernels import length_of  # noqa: E402
from anarchic.kernels.lstm_lanes import Sizes, fused_states, lane_gradients  # noqa: E402
from anarchic.models.lstm import Lstm, LstmCells  # noqa: E402

PAPER = Sizes(classes=80, embedding=8, hidden=100, layers=2)


def by_autograd(params, tokens, y, sizes):
    """One lane after another through the model itself."""
    model = Lstm(sizes.classes, sizes.embedding, sizes.hidden, sizes.layers).to(params.dtype)
    held, rows = dict(model.named_parameters()), []
    for lane in range(len(params)):
        for name, tensor in sizes.split(params).items():
            held[name].data.copy_(tensor[lane])
        loss = torch.nn.functional.cross_entropy(model(tokens[lane].long()), y[lane])
        found = torch.autograd.grad(loss, [held[name] for name in sizes.shapes])
        rows.append(torch.cat([gradient.reshape(-1) for gradient in found]))
    return torch.stack(rows)


def lanes_of(sizes, *, lanes, batch, length, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    bound = 2 / math.sqrt(sizes.hidden)
    params = torch.rand(lanes, length_of(sizes.shapes), generator=generator, dtype=torch.float64)
    tokens = torch.randint(0, sizes.classes, (lanes, batch, length), generator=generator)
    y = torch.randint(0, sizes.classes, (lanes, batch), generator=generator)
    return ((2 * params - 1) * bound).to(dtype), tokens, y


@pytest.mark.parametrize(
    ("sizes", "lanes", "batch", "length", "kind"),
    [
        (Sizes(classes=7, embedding=3, hidden=5, layers=2), 3, 4, 6, torch.uint8),
        (Sizes(classes=4, embedding=2, hidden=6, layers=1), 2, 1, 1, torch.int64),
        (Sizes(classes=9, embedding=8, hidden=3, layers=3), 1, 5, 9, torch.int64),
        (PAPER, 2, 3, 4, torch.uint8),
    ],
)
def test_the_gradients_are_those_of_autograd(sizes, lanes, batch, length, kind):
    params, tokens, y = lanes_of(sizes, lanes=lanes, batch=batch, length=length)
    found = lane_gradients(params, tokens.to(kind), y, shapes=sizes.shapes)
    expected = by_autograd(params, tokens, y, sizes)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_without_weights_only_the_dense_bias_has_a_gradient():
    sizes = Sizes(classes=4, embedding=2, hidden=3, layers=1)
    params = torch.zeros(1, length_of(sizes.shapes))
    y = torch.tensor([[0, 0, 1, 2]])
    found = sizes.split(lane_gradients(params, torch.zeros(1, 4, 5).long(), y, shapes=sizes.shapes))
    # Every class has probability 1/4; half, a quarter, a quarter and none of the labels are its.
    assert found.pop("dense.bias").tolist() == [[-0.25, 0.0, 0.0, 0.25]]
    assert all(not gradient.any() for gradient in found.values())


def test_lanes_do_not_see_each_other_and_inputs_stay_as_they_are():
    sizes = Sizes(classes=5, embedding=2, hidden=4, layers=2)
    params, tokens, y = lanes_of(sizes, lanes=3, batch=2, length=4, dtype=torch.float32)
    before = params.clone(), tokens.clone()
    together = lane_gradients(params, tokens, y, shapes=sizes.shapes)
    alone = lane_gradients(params[1:2], tokens[1:2], y[1:2], shapes=sizes.shapes)
    torch.testing.assert_close(together[1:2], alone, rtol=1e-5, atol=1e-7)
    assert torch.equal(params, before[0])
    assert torch.equal(tokens, before[1])
    assert torch.equal(lane_gradients(params, tokens, y, shapes=sizes.shapes), together)


def test_the_paper_s_sizes_are_those_of_the_model():
    model = Lstm(80)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert PAPER.shapes == shapes
    assert Sizes.of(shapes) == PAPER


def test_a_matrix_of_another_model_is_refused():
    tokens, y = torch.zeros(2, 1, 3).long(), torch.zeros(2, 1).long()
    with pytest.raises(ConfigError, match="133520 parameters per lane"):
        lane_gradients(torch.zeros(2, 10), tokens, y, shapes=PAPER.shapes)
    with pytest.raises(ConfigError, match="No Lstm has tensors"):
        lane_gradients(torch.zeros(2, 10), tokens, y, shapes={"weight": (2, 5)})


def test_fused_states_are_those_of_the_cells():
    torch.manual_seed(0)
    cells, x = LstmCells(5, 7, 2).double(), torch.randn(3, 4, 5, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(fused_states(cells, x), cells(x))
