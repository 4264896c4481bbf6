from __future__ import annotations

import numpy as np
import pytest

from anarchic.train.draws import Draws, philox

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # the known answers of Random123, philox4x32 with ten rounds
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(counter, key, words):
    assert tuple(int(w[0]) for w in philox(tuple(np.array([c]) for c in counter), key)) == words
    in_torch = philox(tuple(torch.tensor([c]) for c in counter), key)
    assert tuple(int(w[0]) for w in in_torch) == words


def draws(worker, visit, steps=3, seed=7, **kw):
    return Draws(seed, np.array(worker), np.array(visit), steps, **kw)


def test_a_lane_draws_the_same_whoever_shares_its_batch():
    alone = draws([4], [2]).below(100, "samples", 9)
    together = draws([1, 4, 9], [0, 2, 2]).below(100, "samples", 9)
    assert (together[1] == alone[0]).all()


def test_a_longer_visit_begins_like_a_shorter_one():
    short, long = draws([4], [2], 2), draws([4], [2], 5)
    assert (long.bits("samples", 8)[:, :2] == short.bits("samples", 8)).all()


def test_torch_draws_what_numpy_draws():
    ours, theirs = draws([1, 2], [0, 1]), draws([1, 2], [0, 1], put=torch.tensor)
    assert (ours.bits("augment", 7) == theirs.bits("augment", 7).numpy()).all()


def test_the_compiled_loop_draws_what_numpy_draws():
    pytest.importorskip("numba")
    for seed in (7, 2**40 + 1, np.array([3, 2**33 + 5])):
        slow, fast = (draws([1, 2], [0, 1], seed=seed, fast=fast) for fast in (False, True))
        assert (fast.bits("augment", 7) == slow.bits("augment", 7)).all()
        assert fast.bits("samples", 8).dtype == slow.bits("samples", 8).dtype


def test_every_key_matters():
    reference = draws([1], [1]).bits("samples", 8)
    for other in (draws([2], [1]), draws([1], [2]), draws([1], [1], seed=8)):
        assert (other.bits("samples", 8) != reference).all()
    assert (draws([1], [1]).bits("augment", 8) != reference).all()
    assert (reference[:, 0] != reference[:, 1]).all()


def test_integers_are_uniform_below_their_bound():
    drawn = draws(range(100), [0] * 100, steps=10).below(np.array(10), "samples", 100)
    counts = np.bincount(drawn.reshape(-1), minlength=10)
    assert len(counts) == 10
    assert (abs(counts - 10_000) < 5 * np.sqrt(10_000)).all()  # five standard deviations


def test_normal_numbers_have_mean_0_and_variance_1():
    drawn = draws(range(100), [0] * 100, steps=10).normal(100)
    assert abs(drawn.mean()) < 5 / np.sqrt(drawn.size)
    assert abs(drawn.var() - 1) < 5 * np.sqrt(2 / drawn.size)
