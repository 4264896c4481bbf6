"""Compiled loops give the bytes that NumPy gives."""

import subprocess
import sys

import numpy as np
import pytest

from anarchic import AfaCd, AfaCs, Update
from anarchic.core.arrays import add_scaled, norms_at_most
from anarchic.core.rules.table import RowExchange, exchange
from anarchic.core.types import Updates
from anarchic.errors import NotFinite
from anarchic.kernels import chunks, loops
from anarchic.kernels.compiled import CAN_COMPILE
from anarchic.kernels.switches import expected_folds
from tests.core.make import dump, fold

pytestmark = pytest.mark.skipif(not CAN_COMPILE, reason="Numba is not installed")

FOLDED = {
    "cd": (AfaCd(m=3), "f4"),
    "cd double": pytest.param(AfaCd(m=3), "f8", marks=pytest.mark.slow),
    "cs": (AfaCs(m=3), "f4"),
    "cs double": pytest.param(AfaCs(m=3), "f8", marks=pytest.mark.slow),
}
DIM = chunks.SHARED + chunks.CHUNK + 17  # several pieces, the last of them short


def numbers(count, dtype, seed=0):
    """Of sizes nine powers of ten apart: any other order or rounding would show."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-4, 5, count)).astype(dtype)


@pytest.fixture(autouse=True)
def _a_long_run(monkeypatch):
    monkeypatch.setattr(loops, "_at_least", chunks.CHUNK)


@pytest.fixture(params=[True, False], ids=["compiled", "numpy"])
def both(request, monkeypatch):
    """Runs a test twice, with and without the loops."""
    monkeypatch.setattr(loops, "CAN_COMPILE", request.param)


def with_and_without(monkeypatch, do):
    found = [do()]
    monkeypatch.setattr(loops, "CAN_COMPILE", False)
    return [*found, do()]


def test_loops_by_hand():
    total, row = np.array([10.0, 20.0]), np.array([1.0, 2.0], np.float32)
    loops.exchange(total, row, np.array([4.0, 6.0], np.float32), 0.5, known=True)
    assert (total.tolist(), row.tolist()) == ([11.0, 21.0], [2.0, 3.0])  # 10 - 1 + 2, 20 - 2 + 3
    loops.exchange(total, row, np.array([8.0, 0.0], np.float32), 0.5, known=False)
    assert (total.tolist(), row.tolist()) == ([15.0, 21.0], [4.0, 0.0])
    loops.add_scaled(total, np.array([2.0, 4.0]), 0.25)
    assert total.tolist() == [15.5, 22.0]
    assert loops.sum_of_squares(np.arange(1.0, 101.0)) == 338350.0


@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize(("wide", "narrow"), [("f4", "f4"), ("f8", "f8"), ("f8", "f4")])
def test_rows_are_added_alike(wide, narrow, rows, monkeypatch):
    matrix = numbers(rows * DIM, narrow).reshape(rows, DIM)
    matrix.flags.writeable = False

    def added():
        total = numbers(DIM, wide, seed=1)
        add_scaled(total, matrix, np.array([0.3, 0.1, 7.7])[:rows])
        return total.tobytes()

    one, other = with_and_without(monkeypatch, added)
    assert one == other


@pytest.mark.parametrize("dtype", ["f4", pytest.param("f8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("known", [True, False])
def test_rows_are_exchanged_alike(dtype, known, monkeypatch):
    def exchanged():
        total, row = numbers(DIM, "f8"), numbers(DIM, dtype, seed=1)
        some = [RowExchange(row, known, numbers(DIM, dtype, seed), 0.3) for seed in (2, 3)]
        exchange(total, some)
        return total.tobytes(), row.tobytes()

    one, other = with_and_without(monkeypatch, exchanged)
    assert one == other


@pytest.mark.parametrize(("rule", "dtype"), FOLDED.values(), ids=FOLDED)
def test_a_rule_folds_alike(rule, dtype, monkeypatch):
    """Compiled or not, one by one or as a block, on one thread or on two."""
    updates = [Update(f"w{n % 2}", 0, 1, 0.3, numbers(DIM, dtype, seed=n)) for n in range(4)]
    found = []
    for threads in (1, 2):
        chunks.use_threads(threads)
        for can_compile in (True, False):
            monkeypatch.setattr(loops, "CAN_COMPILE", can_compile)
            first = np.ones(DIM, dtype)
            found.append(dump(fold(rule, rule.init(first), updates)))
            found.append(dump(rule.receive_many(rule.init(first), Updates.of(updates))))
    chunks.use_threads(None)
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("where", [0, 63, 64, chunks.STRETCH, DIM - 1])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_no_bound_hides_what_is_not_finite(where, bad):
    vector = np.zeros(DIM, np.float32)
    vector[where] = bad
    assert loops.suit(vector)
    assert not norms_at_most(vector[None])[0] < np.inf


def test_a_bound_is_no_less_than_the_norm():
    """Of equal numbers every addition rounds to the same side."""
    for number in (0.1, 0.3, 0.7):
        vector = np.full(chunks.STRETCH, number, np.float32)
        true = float(vector[0]) * np.sqrt(len(vector))
        assert true <= norms_at_most(vector[None])[0] <= 1.003 * true


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("rule", [AfaCd(m=3), AfaCs(m=3)], ids=["cd", "cs"])
def test_a_refused_update_changes_nothing(rule):
    direction = numbers(DIM, "f4")
    state = rule.receive(rule.init(direction), Update("ann", 0, 1, 0.1, direction))
    before, bad = dump(state), direction.copy()
    bad[-1] = np.nan
    with pytest.raises(NotFinite):
        rule.receive(state, Update("ann", 0, 1, 0.1, bad))
    assert dump(state) == before


def test_a_short_run_leaves_numba_alone_unless_its_model_is_large(monkeypatch):
    monkeypatch.setattr(loops, "_at_least", loops.LARGE)
    short, large = (np.broadcast_to(np.float32(0), n).copy() for n in (10**6, loops.LARGE + 1))
    with expected_folds(loops.MANY - 1):
        assert (loops.suit(short), loops.suit(large)) == (False, True)
    with expected_folds(loops.MANY):
        assert loops.suit(short)


def test_only_what_is_worth_it_is_compiled():
    long = np.zeros(chunks.CHUNK + 2, np.float32)
    assert loops.suit(long, long.astype(np.float64))
    assert not loops.suit(long, long[:-2])
    assert not loops.suit(long[::-1])
    assert not loops.suit(long.astype(np.float16))
    assert not loops.suit(long.astype(">f4"))
    assert not loops.suit(np.zeros(4 * len(long) + 1, np.uint8)[1:].view(np.float32))


def test_small_models_do_not_wait_for_numba():
    code = (
        "import sys, numpy as np\n"
        "from anarchic import AfaCs, Update\n"
        "rule = AfaCs(m=1)\n"
        "rule.receive(rule.init(np.zeros(9)), Update('ann', 0, 1, 0.1, np.ones(9)))\n"
        "assert 'numba' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
