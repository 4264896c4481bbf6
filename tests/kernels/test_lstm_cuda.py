"""The kernels on a GPU, or where there is none by Triton's interpreter: tiny sizes only."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
pytest.importorskip("triton", reason="Triton, which comes with torch for CUDA, is not installed")

from anarchic.kernels import lstm_cuda, lstm_lanes  # noqa: E402
from anarchic.kernels.lstm_lanes import Sizes  # noqa: E402
from tests.kernels.test_lstm_lanes import lanes_of  # noqa: E402

SMALL = Sizes(classes=16, embedding=8, hidden=20, layers=2)


def some_lanes(sizes, *, batch=3, length=5):
    given = lanes_of(sizes, lanes=2, batch=batch, length=length, dtype=torch.float32)
    return tuple(tensor.to(DEVICE) for tensor in given)


def away(found, expected):
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("sizes", "batch", "length"),
    [
        pytest.param(SMALL, 3, 5, marks=pytest.mark.slow),
        pytest.param(  # two programs per lane
            Sizes(classes=10, embedding=5, hidden=20, layers=1), 18, 3, marks=pytest.mark.slow
        ),
        (Sizes(classes=9, embedding=4, hidden=16, layers=3), 2, 2),  # nothing to pad
    ],
)
def test_every_gradient_is_that_of_the_reference_to_half_precision(sizes, batch, length):
    params, tokens, y = some_lanes(sizes, batch=batch, length=length)
    expected = lstm_lanes.lane_gradients(params, tokens, y, shapes=sizes.shapes)
    found = lstm_cuda.lane_gradients(params, tokens, y, precision="bf16", shapes=sizes.shapes)
    assert found.dtype == torch.float32
    for name, part in sizes.split(found).items():
        assert away(part, sizes.split(expected)[name]) < 0.012, name


@pytest.mark.slow
def test_bytes_give_the_same_bits_as_integers_and_so_does_a_repeat():
    params, tokens, y = some_lanes(SMALL)
    wide, narrow, again = (
        lstm_cuda.lane_gradients(params, given, y, precision="bf16", shapes=SMALL.shapes)
        for given in (tokens, tokens.to(torch.uint8), tokens)
    )
    assert torch.equal(wide, narrow)
    assert torch.equal(wide, again)


def test_weights_read_at_each_step_give_the_same_tape():
    params, tokens, _ = some_lanes(SMALL)
    recurrent = SMALL.split(params)["lstm.weight_hh_l0"]
    table = torch.randn(2, SMALL.classes, 80, device=DEVICE).half()
    kept, read = (
        lstm_cuda.forward(recurrent, table, tokens, lstm_cuda.Plan(hoist=hoist))
        for hoist in (True, False)
    )
    assert all(torch.equal(one, other) for one, other in zip(kept, read, strict=True))


def test_a_tape_holds_what_the_recurrence_computes():
    # Without weights all gates are those of the table: i = f = o = 1/2 and n = tanh(1).
    hidden = SMALL.hidden
    recurrent = torch.zeros(1, 4 * hidden, hidden, device=DEVICE)
    table = torch.zeros(1, 2, 4 * hidden, device=DEVICE, dtype=torch.float16)
    table[..., 2 * hidden : 3 * hidden] = 1.0
    tape = lstm_cuda.forward(recurrent, table, torch.zeros(1, 1, 2, device=DEVICE).byte())
    first = 0.5 * 0.76159416  # c_1 = i n, c_2 = f c_1 + i n
    assert tape.cells[0, :, 0, 3].tolist() == pytest.approx([first, 1.5 * first], rel=1e-3)
    assert tape.last[0, 0, 3].item() == pytest.approx(0.5 * 0.51621, rel=1e-4)
    assert tape.states[0, 0, 0].tolist() == [0.0] * hidden + [1.0, 0.0, 0.0, 0.0]


def test_other_precisions_are_the_reference_itself():
    given = some_lanes(SMALL)
    found = lstm_cuda.lane_gradients(*given, precision="ieee", shapes=SMALL.shapes)
    assert torch.equal(found, lstm_lanes.lane_gradients(*given, shapes=SMALL.shapes))
