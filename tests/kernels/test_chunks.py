import multiprocessing
import os
import subprocess
import sys
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from anarchic import AfaCd, AfaCs, Clip, Update
from anarchic.core.arrays import add_scaled, norms, norms_at_most, times
from anarchic.errors import ConfigError
from anarchic.kernels import chunks
from tests.core.make import dump, fold

LARGE = chunks.SHARED + 3 * chunks.CHUNK + 17  # several pieces, the last of them short


@pytest.fixture
def threads():
    yield chunks.use_threads
    chunks.use_threads(None)


def pieces(dim, **options):
    found = []
    chunks.sweep(dim, found.append, **options)
    return sorted((where.start, where.stop) for where in found)


def test_a_sweep_is_over_every_number_once(threads):
    assert pieces(5, chunk=10) == [(0, 5)]
    assert pieces(0) == [(0, 0)]
    assert pieces(25, chunk=10) == [(0, 10), (10, 20), (20, 25)]
    for count in (1, 2, 3):
        threads(count)
        found = pieces(LARGE)
        assert found[0][0] == 0
        assert found[-1][1] == LARGE
        assert all(a[1] == b[0] for a, b in pairwise(found))


def test_what_goes_wrong_on_another_thread_is_not_lost(threads):
    threads(2)

    def fail_late(where):
        if where.stop == LARGE:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        chunks.sweep(LARGE, fail_late)


def test_a_forked_process_has_threads_of_its_own(threads):
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("there is no fork here")
    code = (
        "import os\n"
        "from anarchic.kernels import chunks\n"
        "chunks.use_threads(2)\n"
        f"chunks.sweep({LARGE}, lambda where: None)\n"
        "child = os.fork()\n"
        f"chunks.sweep({LARGE}, lambda where: None)\n"
        "if child: assert os.waitpid(child, 0)[1] == 0\n"
        "else: os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


def test_threads_are_a_setting_of_the_process(monkeypatch):
    monkeypatch.setenv("ANARCHIC_THREADS", "3")
    assert chunks._threads_wanted() == 3
    monkeypatch.delenv("ANARCHIC_THREADS")
    assert 1 <= chunks._threads_wanted() <= min(4, os.cpu_count())
    monkeypatch.setenv("ANARCHIC_THREADS", "many")
    with pytest.raises(ConfigError, match="'many'"):
        chunks._threads_wanted()
    with pytest.raises(ConfigError, match="got 0"):
        chunks.use_threads(0)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize(
    ("rows", "dim"), [(1, 5), (7, 1), (300, 1), (7, 2), (513, 1000), (3, chunks.CHUNK + 5)]
)
def test_rows_are_added_one_after_another(rows, dim, dtype):
    """To the last bit: sizes nine powers of ten apart would show any other order."""
    rng = np.random.default_rng(rows)
    size = 10.0 ** rng.integers(-4, 4, (rows, 1))
    matrix = (rng.normal(size=(rows, dim)) * size).astype(dtype)
    factors = rng.uniform(0.1, 1, rows)
    total = rng.normal(size=dim).astype(dtype)
    expected = total.copy()
    for row, factor in zip(matrix, factors.tolist(), strict=True):
        expected += times(row, factor, expected)
    add_scaled(total, matrix, factors)
    assert total.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dim", [0, 3, 8192, 8193, chunks.CHUNK + 9, LARGE])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_norms_and_their_bounds(dim, dtype):
    rng = np.random.default_rng(dim)
    matrix = rng.normal(size=(2, dim)).astype(dtype)
    true = np.sqrt((matrix.astype(np.float64) ** 2).sum(1))
    np.testing.assert_allclose(norms(matrix), true, rtol=1e-4)
    bounds = norms_at_most(matrix)
    assert ((true * (1 - 1e-6) <= bounds) & (bounds <= true * 1.003)).all()
    assert norms(matrix[:1])[0] == norms(matrix)[0]


@pytest.mark.parametrize("where", [0, 8191, chunks.CHUNK, -1])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_no_bound_hides_what_is_not_finite(where, bad):
    vector = np.zeros(chunks.CHUNK + 9, np.float32)
    vector[where] = bad
    assert not norms_at_most(vector[None])[0] < np.inf
    assert not norms(vector[None])[0] < np.inf


def test_squares_that_overflow_are_no_small_norm():
    assert norms_at_most(np.full((1, 9), 1e30, np.float32))[0] == np.inf


def large_updates(count):
    rng = np.random.default_rng(0)
    return [
        Update(f"w{n % 2}", 0, 1, 0.3, rng.standard_normal(LARGE, np.float32)) for n in range(count)
    ]


@pytest.mark.parametrize(
    "rule",
    [AfaCd(m=3), AfaCs(m=3), Clip(AfaCd(m=3), 0.1)],
    ids=["cd", "cs", "clip"],
)
def test_results_do_not_depend_on_the_threads(rule, threads):
    updates = large_updates(4)
    found = []
    for count in (1, 2, 3):
        threads(count)
        found.append(dump(fold(rule, rule.init(np.ones(LARGE, np.float32)), updates)))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("rule", [AfaCd(m=99), AfaCs(m=99)], ids=["cd", "cs"])
def test_an_update_makes_no_temporary_of_the_size_of_the_model(rule, threads):
    threads(2)
    dim = 1 << 22
    state = rule.init(np.zeros(dim, np.float32))
    update = Update("ann", 0, 1, 0.5, np.ones(dim, np.float32))
    state = rule.receive(state, update)  # her row is there
    tracemalloc.start()
    try:
        rule.receive(state, update)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * dim / 4, f"{peak} bytes for a model of {4 * dim}"
