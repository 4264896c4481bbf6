from itertools import permutations

import numpy as np
import pytest

from anarchic.participation import distinct
from anarchic.participation.distinct import distinct_workers

BIASED = np.array([0.19, 0.19, *[0.1] * 6, 0.01, 0.01])


def ordered_law(p: np.ndarray, m: int) -> dict[tuple[int, ...], float]:
    """Probability of every ordered sample by successive draws, from the definition."""
    law = {}
    for sample in permutations(range(len(p)), m):
        left, chance = 1.0, 1.0
        for worker in sample:
            chance *= p[worker] / left
            left -= p[worker]
        law[sample] = chance
    return law


def assert_follows(rows: np.ndarray, law: dict[tuple[int, ...], float]) -> None:
    n = len(rows)
    found = dict.fromkeys(law, 0)
    for row in rows.tolist():
        found[tuple(row)] += 1
    expected = np.array([law[sample] * n for sample in law])
    counts = np.array([found[sample] for sample in law])
    likely = expected > 0
    assert counts[~likely].sum() == 0
    statistic = ((counts - expected)[likely] ** 2 / expected[likely]).sum()
    freedom = likely.sum() - 1
    assert statistic < freedom + 4 * np.sqrt(2 * freedom)  # chi-square: mean k, variance 2k


@pytest.mark.parametrize("m", [1, 2, 3])
def test_uniform_by_races(m):
    """Few workers: all of them race."""
    p = np.full(4, 0.25)
    assert_follows(distinct_workers(np.random.default_rng(m), 4, (40_000, m)), ordered_law(p, m))


def test_uniform_by_redrawing():
    """More than four times m workers: repeats are redrawn."""
    p = np.full(10, 0.1)
    rows = distinct_workers(np.random.default_rng(1), 10, (60_000, 2))
    assert_follows(rows, ordered_law(p, 2))


@pytest.mark.parametrize("workers", [4, 13])
def test_probabilities_by_races_and_by_redrawing(workers):
    p = np.arange(workers, dtype=np.float64)  # worker 0 never comes
    p /= p.sum()
    rows = distinct_workers(np.random.default_rng(2), workers, (60_000, 3), p)
    assert_follows(rows, ordered_law(p, 3))


def test_a_race_settles_what_redrawing_leaves(monkeypatch):
    """One pass only: most rows of so uneven a population are left to the race."""
    monkeypatch.setattr(distinct, "_PASSES", 1)
    p = np.array([0.8, *[0.02] * 10])
    rows = distinct_workers(np.random.default_rng(3), 11, (60_000, 2), p)
    assert_follows(rows, ordered_law(p, 2))


def test_blocks_of_races_join(monkeypatch):
    monkeypatch.setattr(distinct, "_RACE_KEYS", 30)
    rows = distinct_workers(np.random.default_rng(4), 10, (1000, 5))
    assert (np.diff(np.sort(rows, axis=1), axis=1) > 0).all()


def test_inclusion_frequencies_match_numpy_choice():
    """The paper's biased arrivals: 5 of 10, against drawing them one round at a time."""
    n = 20_000
    rows = distinct_workers(np.random.default_rng(5), 10, (n, 5), BIASED)
    rng = np.random.default_rng(6)
    slow = np.array([rng.choice(10, 5, replace=False, p=BIASED) for _ in range(n)])
    mine, theirs = (np.bincount(x.ravel(), minlength=10) / n for x in (rows, slow))
    assert np.abs(mine - theirs).max() < 4.5 * np.sqrt(2 * 0.25 / n)


def test_all_workers_once_when_m_is_everyone():
    rows = distinct_workers(np.random.default_rng(7), 6, (50, 6))
    assert (np.sort(rows, axis=1) == np.arange(6)).all()


def test_a_small_sample_of_a_million_draws_few_keys():
    """O(m) a round: 20,000 rounds of 2 would need 20 billion keys by races."""
    rows = distinct_workers(np.random.default_rng(8), 1_000_000, (20_000, 2))
    assert (rows[:, 0] != rows[:, 1]).all()
    assert abs(rows.mean() - 499_999.5) < 4 * 1e6 / np.sqrt(12 * 40_000)
