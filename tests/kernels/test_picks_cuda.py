"""Picks by the kernels against those of ``Draws``, on the CPU by Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
import torch

from anarchic.train import torch_data
from anarchic.train.draws import STREAMS, Draws
from anarchic.train.samples import WorkerSamples
from tests.kernels.interpreted import interpreted
from tests.train.conftest import make_task

picks_cuda = interpreted("anarchic.kernels.picks_cuda")

LANES = 3
HELD, FIRST = np.array([7, 1, 60_000]), np.array([0, 7, 8])
WORKERS = np.array([5, 0, 2**31])


def draws(seed: int | np.ndarray) -> Draws:
    return Draws(seed, WORKERS, np.array([0, 9, 2**20]), steps=2)


@pytest.mark.parametrize("seed", [3, 2**40 + 1, np.array([1, 2**33, 5])], ids=str)
@pytest.mark.parametrize(
    "batch",
    # 515: more than the numbers of one program
    [pytest.param(1, marks=pytest.mark.slow), 10, pytest.param(515, marks=pytest.mark.slow)],
)
def test_samples_and_crops_are_those_of_draws(seed: int | np.ndarray, batch: int) -> None:
    some = draws(seed)
    known = WorkerSamples(np.arange(60_008), HELD, WORKERS)
    lanes = torch.from_numpy(known.lane_numbers(replace(some, worker=np.arange(LANES))))
    dealt = torch.randperm(60_008, generator=torch.Generator().manual_seed(0))
    column = (slice(None), None, None)
    below = some.below(HELD[column], "samples", batch)
    want = dealt[torch.from_numpy(FIRST[column] + below)]
    assert torch.equal(picks_cuda.pick_samples(lanes, dealt, 2, batch, STREAMS["samples"]), want)
    crops = torch_data.pick_crops(torch.from_numpy(some.bits("augment", 3 * batch)))
    ways, stream = 2 * torch_data.PAD + 1, STREAMS["augment"]
    assert torch.equal(picks_cuda.pick_crops(lanes, 2, batch, stream, ways), crops)


def test_a_task_picks_the_same_by_the_kernels() -> None:
    task = make_task("logistic-crops")
    some = Draws(3, np.array([4, 0, 1]), np.array([0, 9, 2]), steps=2)
    kernels = picks_cuda.pick_samples, picks_cuda.pick_crops
    found, want = task._pick_by_kernels(*kernels, some, 5), task.pick(some, 5)
    assert found.keys() == want.keys() == {"sample", "crop"}
    assert all(torch.equal(found[name], want[name]) for name in want)
