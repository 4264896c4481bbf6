from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from anarchic.kernels import lstm_lanes  # noqa: E402
from anarchic.kernels.lstm_cpu import lane_gradients  # noqa: E402
from anarchic.kernels.lstm_lanes import Sizes  # noqa: E402
from tests.kernels.test_lstm_lanes import PAPER, lanes_of  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("sizes", [Sizes(7, 3, 5, 3), PAPER])
def test_the_gradients_are_those_over_lanes(sizes, dtype):
    params, tokens, y = lanes_of(sizes, lanes=3, batch=4, length=6, dtype=dtype)
    found = lane_gradients(params, tokens.to(torch.uint8), y, shapes=sizes.shapes)
    expected = lstm_lanes.lane_gradients(params, tokens, y, shapes=sizes.shapes)
    least = {torch.float64: 1e-12, torch.float32: 1e-6}[dtype]
    torch.testing.assert_close(found, expected, rtol=100 * least, atol=least)
    assert expected.abs().max() > 0.01
    assert torch.equal(found, lane_gradients(params, tokens, y, shapes=sizes.shapes))


def test_lanes_do_not_see_each_other_and_inputs_stay_as_they_are():
    params, tokens, y = lanes_of(PAPER, lanes=3, batch=2, length=4, dtype=torch.float32)
    before = params.clone()
    together = lane_gradients(params, tokens, y, shapes=PAPER.shapes)
    alone = lane_gradients(params[1:2], tokens[1:2], y[1:2], shapes=PAPER.shapes)
    assert torch.equal(together[1:2], alone)
    assert torch.equal(params, before)
    assert not params.requires_grad
