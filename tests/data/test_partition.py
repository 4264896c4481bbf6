"""What every partitioner promises, and what each promises besides."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anarchic.data import Dataset, by_role, dirichlet, iid, labels
from anarchic.errors import ConfigError


def roles(y, workers, seed):
    """``by_role`` with the signature of the others."""
    role = np.random.default_rng(seed).integers(0, workers, len(y))
    zeros = np.zeros((len(y), 1), np.float32)
    return by_role(Dataset("toy", zeros, y, zeros, y, 10, tuple(map(str, range(workers))), role))


PARTITIONERS = {
    "labels": partial(labels, per_worker=5),
    "dirichlet": partial(dirichlet, alpha=0.3),
    "iid": iid,
    "by_role": roles,
}
every_partitioner = pytest.mark.parametrize("partition", PARTITIONERS.values(), ids=PARTITIONERS)


def some_labels(seed, samples=600, classes=10):
    y = np.random.default_rng(seed).integers(0, classes, samples)
    y[: 20 * classes] = np.arange(20 * classes) % classes  # every class often enough
    return y


@every_partitioner
@given(workers=st.integers(1, 10).map(lambda half: 2 * half), seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_parts_do_not_overlap_and_repeat(partition, workers, seed):
    y = some_labels(seed)
    untouched = y.copy()
    parts = partition(y, workers=workers, seed=seed)
    joined = np.concatenate(parts)
    assert len(parts) == workers
    assert all(part.dtype == np.int64 for part in parts)
    assert all((np.diff(part) > 0).all() for part in parts)
    assert len(np.unique(joined)) == len(joined)
    assert joined.min() >= 0
    assert joined.max() < len(y)
    again = partition(y, workers=workers, seed=seed)
    assert all(map(np.array_equal, parts, again))
    assert np.array_equal(y, untouched)


@every_partitioner
def test_another_seed_gives_other_parts(partition):
    y = some_labels(0)
    one, other = (partition(y, workers=10, seed=seed) for seed in (1, 2))
    assert not all(map(np.array_equal, one, other))


@given(workers=st.integers(1, 40), data=st.data(), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_labels_gives_each_worker_exactly_per_worker_classes(workers, data, seed):
    classes = data.draw(st.integers(1, 12))
    able = [p for p in range(1, classes + 1) if workers * p % classes == 0]
    per_worker = data.draw(st.sampled_from(able))
    y = some_labels(seed, samples=50 * classes, classes=classes)
    if workers * per_worker // classes > 20:
        y = np.repeat(y, 2)
    table = table_of(labels(y, workers, per_worker, seed), y, classes)
    share = np.bincount(y).min() // (workers * per_worker // classes)
    assert set(np.unique(table)) <= {0, share}
    assert (np.count_nonzero(table, axis=1) == per_worker).all()
    assert len(set(np.count_nonzero(table, axis=0))) == 1


def table_of(parts, y, classes):
    return np.array([np.bincount(y[part], minlength=classes) for part in parts])


@pytest.mark.parametrize(("workers", "per_worker"), [(10, 1), (100, 10), (1000, 3), (1000, 10)])
def test_labels_of_many_workers(workers, per_worker):
    y = np.arange(60_000) % 10
    table = table_of(labels(y, workers, per_worker, seed=0), y, 10)
    assert table.sum() == 60_000
    assert (np.count_nonzero(table, axis=1) == per_worker).all()


def test_all_pairs_of_classes_occur():
    y = np.arange(9_000) % 10
    parts = labels(y, workers=900, per_worker=2, seed=0)
    pairs = [tuple(np.unique(y[part])) for part in parts]
    counts = np.unique(pairs, axis=0, return_counts=True)[1]
    assert len(counts) == 45
    assert counts.min() >= 5  # 20 of each on average
    assert counts.max() <= 40


def test_the_labels_need_not_count_from_zero():
    y = np.array([7, 7, 9, 9])
    assert sorted(part.tolist() for part in labels(y, 2, 1, seed=0)) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("per_worker", [0, 1, 3, 11])
def test_labels_lists_possible_values_of_per_worker(per_worker):
    with pytest.raises(ConfigError, match=r"With 5 workers per_worker can be 2, 4, 6, 8, 10\."):
        labels(np.arange(100) % 10, 5, per_worker, seed=0)


def test_labels_needs_a_sample_for_each_slot():
    with pytest.raises(ConfigError, match="held by 20 workers, but the rarest has only 10"):
        labels(np.arange(100) % 10, 20, 10, seed=0)


@given(
    workers=st.integers(1, 60),
    alpha=st.sampled_from([1e-3, 0.1, 1.0, 100.0]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_dirichlet_uses_all_samples_and_leaves_no_worker_empty(workers, alpha, seed):
    parts = dirichlet(some_labels(seed), workers, alpha, seed)
    assert sum(map(len, parts)) == 600
    assert min(map(len, parts)) >= 1


def test_a_small_alpha_concentrates_the_classes():
    y = np.arange(10_000) % 10
    largest = [
        table_of(dirichlet(y, 10, alpha, seed=0), y, 10).max(axis=0).mean() for alpha in (0.05, 100)
    ]
    assert largest[0] > 700
    assert largest[1] < 200


def test_iid_is_even_and_accepts_a_sample_count():
    parts = iid(103, 10, seed=0)
    assert sorted(map(len, parts)) == [10] * 7 + [11] * 3
    assert all(map(np.array_equal, parts, iid(np.zeros(103), 10, seed=0)))


def test_by_role_keeps_the_order_of_the_roles():
    zeros = np.zeros((4, 1), np.float32)
    y = np.zeros(4, np.int64)
    data = Dataset("toy", zeros, y, zeros, y, 1, ("a", "b", "c"), np.array([1, 0, 1, 2]))
    assert [part.tolist() for part in by_role(data)] == [[1], [0, 2], [3]]


def test_wrong_settings_are_refused():
    y = np.arange(20) % 10
    with pytest.raises(ConfigError, match="alpha=0"):
        dirichlet(y, 2, 0, seed=0)
    with pytest.raises(ConfigError, match=r"workers=21 with at least one each\. Take 1 to 20"):
        dirichlet(y, 21, 1.0, seed=0)
    with pytest.raises(ConfigError, match="workers=0"):
        iid(20, 0, seed=0)
    with pytest.raises(ConfigError, match="workers=0"):
        labels(y, 0, 1, seed=0)
    zeros = np.zeros((20, 1), np.float32)
    with pytest.raises(ConfigError, match="toy has no roles"):
        by_role(Dataset("toy", zeros, y, zeros, y, 10))
