"""Batches that go through all samples of a worker."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anarchic.data import load
from anarchic.errors import ConfigError
from anarchic.train.draws import Draws
from anarchic.train.logistic_task import LogisticTask
from anarchic.train.samples import WorkerSamples

PARTS = [np.arange(10, 17), np.arange(3), np.arange(3, 10)]
HELD = WorkerSamples.of(PARTS, 17)


def draws(workers, steps, seed=5, visit=0):
    count = len(workers)
    return Draws(seed, np.array(workers), np.full(count, visit), steps, in_epochs=True)


def picked(drawn, batch, held=HELD):
    return held.index[held.pick(drawn, batch, np.asarray)]


@pytest.mark.parametrize("kind", [np.array, list])
def test_parts_may_be_masks(kind):
    masks = [kind(np.isin(np.arange(17), part)) for part in PARTS]
    held = WorkerSamples.of([*masks, [4]], 17)
    assert held.counts.tolist() == [7, 3, 7, 1]
    assert held.index.tolist() == [*HELD.index, 4]


@pytest.mark.parametrize("per_worker", [False, True])
def test_a_task_takes_masks(per_worker):
    data = load("digits")
    site = data.y_train % 3
    masks = [site == number for number in range(3)]
    numbers = [np.flatnonzero(mask) for mask in masks]
    one, other = (LogisticTask(data, part, per_worker=per_worker) for part in (masks, numbers))
    assert one.digest() == other.digest()


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (np.ones(5, bool), r"mask of worker 1 has shape \(5,\), but there are 17 training samples"),
        (np.zeros(17, bool), "Worker 1 holds no sample"),
        ([], "Worker 1 holds no sample"),
        (np.ones(3), r"part of worker 1 has type float64 .* give a list of the numbers"),
        (np.ones((3, 2), int), r"part of worker 1 has type int64 and shape \(3, 2\)"),
        (7, r"part of worker 1 has type int64 and shape \(\)"),
    ],
)
def test_parts_that_are_no_numbers_are_refused(part, says):
    with pytest.raises(ConfigError, match=says):
        WorkerSamples.of([np.arange(3), part], 17)


def test_an_epoch_holds_every_sample_and_fills_up_its_last_batch_from_its_beginning():
    (samples,) = picked(draws([0], 6), batch=3)  # seven samples: three batches per epoch
    first, second = samples[:3].ravel(), samples[3:].ravel()
    for epoch in (first, second):
        assert sorted(epoch[:7]) == list(range(10, 17))
        assert epoch[7:].tolist() == epoch[:2].tolist()
    assert first.tolist() != second.tolist()


def test_a_batch_may_be_larger_than_what_a_worker_holds():
    (samples,) = picked(draws([1], 2), batch=7)
    for batch in samples:
        assert sorted(np.bincount(batch)) == [2, 2, 3]


def test_a_visit_draws_the_same_whoever_else_is_in_the_batch_and_however_long_they_stay():
    together = picked(draws([0, 1, 2], 9), batch=2)
    for lane in range(3):
        alone = picked(draws([lane], 5), batch=2)
        assert together[lane, :5].tolist() == alone[0].tolist()


@pytest.mark.parametrize("change", [{"seed": 6}, {"visit": np.array([1])}])
def test_another_seed_or_visit_has_another_order(change):
    one = draws([0], 3)
    assert picked(one, 3).tolist() != picked(replace(one, **change), 3).tolist()


def test_workers_draw_in_a_joint_task_what_they_draw_on_their_own():
    joint = HELD.joined([HELD])
    seeds = replace(draws([4], 3), seed=np.array([5]))
    assert picked(seeds, 3, joint).tolist() == picked(draws([1], 3), 3).tolist()


def test_the_order_is_uniform():
    counts = np.zeros((3, 3))
    for visit in range(600):
        order = picked(draws([1], 1, visit=visit), batch=3)[0, 0]
        counts[order, np.arange(3)] += 1
    assert (abs(counts / 600 - 1 / 3) < 4 * np.sqrt(2 / 9 / 600)).all()
