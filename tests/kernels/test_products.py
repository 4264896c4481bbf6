from __future__ import annotations

import numpy as np
import pytest

from anarchic.kernels import switches
from anarchic.kernels.products import ROWS, tall_product


@pytest.mark.parametrize("rows", [1, 7, ROWS, 2 * ROWS + 3])
def test_a_tall_product_is_the_product(rows):
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(rows, 20)), draw.normal(size=(20, 3))
    np.testing.assert_allclose(tall_product(x, y), x @ y)


def test_a_tall_product_has_the_same_bytes_with_any_number_of_threads():
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(5000, 784)).astype("f4"), draw.normal(size=(784, 10)).astype("f4")
    found = []
    for threads in (1, 2, 3):
        with switches.fold_threads(threads):
            found.append(tall_product(x, y).tobytes())
    assert found[0] == found[1] == found[2]


def test_threads_of_products_are_put_back():
    pytest.importorskip("threadpoolctl")
    from threadpoolctl import threadpool_info

    def threads() -> list[int]:
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    before = threads()
    if not before:
        pytest.skip("NumPy's BLAS library has no setting for its threads.")
    with switches.one_blas_thread():
        assert threads() == [1] * len(before)
    assert threads() == before
