from __future__ import annotations

import threading
import time

import pytest

from anarchic.errors import ConfigError
from anarchic.kernels import chunks, loops, switches
from anarchic.kernels.chunks import threads_in_use


def test_threads_of_folds_are_put_back_also_after_an_error():
    before = threads_in_use()

    def stopped() -> None:
        with switches.fold_threads(before + 1):
            raise ValueError(threads_in_use())

    with pytest.raises(ValueError, match=f"^{before + 1}$"):
        stopped()
    assert threads_in_use() == before
    with pytest.raises(ConfigError, match="at least one thread"), switches.fold_threads(0):
        pass
    assert threads_in_use() == before


def test_threads_of_torch_are_put_back():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    with switches.torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        with switches.torch_threads(None):
            assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("precision", "allowed"), [("ieee", False), ("tf32", True)])
@pytest.mark.parametrize("before", [False, True])
def test_the_precision_of_products_is_put_back(precision, allowed, before):
    torch = pytest.importorskip("torch")
    backends = torch.backends.cuda.matmul, torch.backends.cudnn
    was = [backend.allow_tf32 for backend in backends]
    try:
        for backend in backends:
            backend.allow_tf32 = before
        with switches.matmul_precision(precision):
            assert [backend.allow_tf32 for backend in backends] == [allowed, allowed]
            assert torch.backends.cudnn.deterministic
        assert [backend.allow_tf32 for backend in backends] == [before, before]
        assert not torch.backends.cudnn.deterministic
    finally:
        for backend, value in zip(backends, was, strict=True):
            backend.allow_tf32 = value


def test_a_long_run_uses_compiled_loops_on_shorter_vectors_while_it_lasts():
    before = loops.shortest()
    with switches.expected_folds(loops.MANY - 1):
        assert loops.shortest() == before
    with switches.expected_folds(loops.MANY):
        assert loops.shortest() < before
    assert loops.shortest() == before


def test_runs_that_overlap_leave_what_was_before():
    before = threads_in_use()
    first, second = switches.fold_threads(1), switches.fold_threads(3)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert threads_in_use() == 3
    second.__exit__(None, None, None)
    assert threads_in_use() == before


def test_a_pool_that_another_thread_replaces_goes_on_working():
    stop, errors = threading.Event(), []

    def work(threads):
        try:
            while not stop.is_set():
                with switches.fold_threads(threads):
                    chunks.sweep(3 * chunks.SHARED, lambda where: None)
        except RuntimeError as error:
            errors.append(error)

    several = [threading.Thread(target=work, args=(threads,)) for threads in (2, 3, 4)]
    for thread in several:
        thread.start()
    time.sleep(0.5)
    stop.set()
    for thread in several:
        thread.join()
    assert errors == []
