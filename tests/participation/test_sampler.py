from itertools import permutations

import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import ConstantSteps, Sampler, UniformSteps, sampler
from anarchic.participation import sampler as sampler_module
from anarchic.participation.sampler import distinct_workers

STEPS = ConstantSteps(5)


def test_synchronous_rounds_have_no_staleness_and_no_clock():
    table = Sampler(10, 5, STEPS).timetable(0, rounds=20)
    table.check()
    assert (len(table), table.rounds, table.workers, table.m) == (100, 20, 10, 5)
    assert table.staleness.tolist() == [0] * 100
    assert table.local_steps.tolist() == [5] * 100
    assert table.pull_s is None
    assert table.push_s is None


def test_no_worker_twice_in_a_round_without_replacement():
    for workers in (10, 100):
        rounds = Sampler(workers, 5, STEPS).timetable(0, 500).worker.reshape(500, 5)
        assert (np.diff(np.sort(rounds, axis=1), axis=1) > 0).all()


def test_workers_come_uniformly():
    for replace in (False, True):
        n = 20_000
        table = Sampler(10, 5, STEPS, replace=replace).timetable(1, n)
        counts = np.bincount(table.worker, minlength=10)
        spread = np.sqrt(n * 5 * 0.1)
        assert np.abs(counts - n / 2).max() < 4.5 * spread


def test_with_replacement_a_worker_may_come_twice():
    rounds = Sampler(3, 5, STEPS, replace=True).timetable(0, 50).worker.reshape(50, 5)
    assert (np.diff(np.sort(rounds, axis=1), axis=1) == 0).any()


def test_probabilities_with_replacement_are_those_of_each_draw():
    p = np.array([0.5, 0.0, 0.3, 0.2, 0.0])
    n = 100_000
    table = Sampler(5, 4, STEPS, replace=True, probabilities=p).timetable(2, n // 4)
    found = np.bincount(table.worker, minlength=5) / n
    assert found[1] == found[4] == 0
    assert np.abs(found - p).max() < 4.5 * np.sqrt(0.25 / n)


def test_base_versions_are_uniform_among_the_last_five_that_exist():
    n = 20_000
    table = Sampler(10, 5, STEPS, max_staleness=4).timetable(3, n)
    table.check()
    staleness = table.staleness.reshape(n, 5)
    assert staleness[0].tolist() == [0] * 5
    for t in range(4):
        assert staleness[t].max() <= t
    counts = np.bincount(staleness[4:].ravel(), minlength=5)
    assert len(counts) == 5
    assert np.abs(counts - 5 * (n - 4) / 5).max() < 4.5 * np.sqrt(5 * n * 0.2 * 0.8)


def test_early_rounds_reach_every_version_that_exists():
    runs = [Sampler(4, 2, STEPS, max_staleness=2).timetable(seed, 3) for seed in range(60)]
    for t in range(3):
        seen = {base for run in runs for base in run.base_version[2 * t : 2 * t + 2].tolist()}
        assert seen == set(range(t + 1))


def test_a_seed_and_its_generator_give_the_same_table():
    sampler = Sampler(10, 5, UniformSteps(1, 10), max_staleness=4)
    assert sampler.timetable(7, 50) == sampler.timetable(np.random.default_rng(7), 50)
    assert sampler.timetable(7, 50) != sampler.timetable(8, 50)


def test_tables_are_made_in_blocks(monkeypatch):
    monkeypatch.setattr(sampler_module, "_BLOCK_ROWS", 12)
    table = Sampler(10, 5, STEPS, max_staleness=1).timetable(0, 101)
    table.check()
    assert table.rounds == 101
    assert set(table.staleness[5:].tolist()) == {0, 1}


def test_no_rounds_make_an_empty_table():
    assert len(Sampler(10, 5, STEPS).timetable(0, 0)) == 0
    assert len(Sampler(100, 5, STEPS).timetable(0, 0)) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"m": 11}, "m=11 of 10 workers without replacement; lower m or set replace=True"),
        ({"m": 0}, "got 10, 0 and 0"),
        ({"max_staleness": -1}, "got 10, 5 and -1"),
        ({"probabilities": [0.5, 0.5]}, r"each of 10 workers, got an array of shape \(2,\)"),
        ({"probabilities": [-0.1, 1.1, *[0] * 8]}, "worker 0 has -0.1"),
        ({"probabilities": [np.nan, 1.0, *[0] * 8]}, "worker 0 has nan"),
        ({"probabilities": [0.2] * 10}, "sum to 1, got 2"),
        ({"probabilities": [0.25] * 4 + [0] * 6}, "only 4 have a probability above 0"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Sampler(**{"workers": 10, "m": 5, "steps": STEPS, **settings})


def test_what_is_possible_with_replacement_is_not_refused():
    Sampler(3, 5, STEPS, replace=True)
    Sampler(3, 5, STEPS, replace=True, probabilities=[1, 0, 0])
    Sampler(2, 1, STEPS, probabilities=[0.3333333, 0.6666667])


def test_negative_rounds_are_refused():
    with pytest.raises(ConfigError, match="rounds >= 0, got -1"):
        Sampler(10, 5, STEPS).timetable(0, -1)


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
    monkeypatch.setattr(sampler, "_PASSES", 1)
    p = np.array([0.8, *[0.02] * 10])
    rows = distinct_workers(np.random.default_rng(3), 11, (60_000, 2), p)
    assert_follows(rows, ordered_law(p, 2))


def test_blocks_of_races_join(monkeypatch):
    monkeypatch.setattr(sampler, "_RACE_KEYS", 30)
    rows = distinct_workers(np.random.default_rng(4), 10, (1000, 5))
    assert (np.diff(np.sort(rows, axis=1), axis=1) > 0).all()


@pytest.mark.slow
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
