"""Recordings, with a recorder that replays on the CPU by calling the function again."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from anarchic.kernels.recorded import Recorded, _rounded  # noqa: E402


class Recorder:
    """Counts recordings; a replay computes from the recorded tensors into the recorded result."""

    def __init__(self) -> None:
        self.lanes: list[int] = []

    def __call__(self, function, inputs):
        self.lanes.append(len(inputs["a"]))
        output = function(inputs)
        return (lambda: output.copy_(function(inputs))), output


def times(inputs):
    return inputs["a"] * inputs["b"].sum(1, keepdim=True)


def pair(lanes: int, width: int = 3, seed: int = 0):
    torch.manual_seed(seed)
    return {"a": torch.randn(lanes, 2), "b": torch.randn(lanes, width)}


def test_a_replay_gives_what_the_function_gives():
    recorder = Recorder()
    recorded = Recorded(times, lambda: recorder)
    for turn, lanes in enumerate((5, 3, 5, 8, 3, 40, 39, 5)):
        inputs = pair(lanes, seed=turn)
        assert torch.equal(recorded(inputs), times(inputs))
    assert recorder.lanes == [5, 3, 8, 40]  # 39 lanes use the recording of 40


def test_another_batch_size_is_recorded_anew():
    recorder = Recorder()
    recorded = Recorded(times, lambda: recorder)
    for width in (3, 4, 4):
        inputs = pair(6, width)
        assert torch.equal(recorded(inputs), times(inputs))
    assert recorder.lanes == [6, 6]


def test_rows_beyond_the_lanes_hold_what_can_be_computed():
    seen = []

    def look_up(inputs):
        seen.append(inputs["index"].clone())
        return torch.arange(10.0)[inputs["index"]]

    recorded = Recorded(look_up, lambda: lambda function, inputs: (lambda: None, function(inputs)))
    recorded({"index": torch.full((33, 1), 7)})
    assert len(seen[0]) == 34
    assert set(seen[0].flatten().tolist()) == {7}


@pytest.mark.parametrize("lanes", [1, 2, 15, 16, 17, 31, 32, 100, 863, 864, 5000])
def test_rounding_up_costs_little(lanes):
    assert lanes <= _rounded(lanes) <= lanes * (1 + 1 / 16)


def test_few_numbers_of_lanes_are_told_apart():
    assert len({_rounded(lanes) for lanes in range(1, 865)}) < 110
