"""Matrix products on the threads of this package instead of those of the BLAS library."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.kernels.chunks import share, threads_in_use
from anarchic.kernels.switches import one_blas_thread

ROWS = 1024  # per piece; fixed, so that the result does not depend on the number of threads


def tall_product(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """``x @ y`` where ``x`` has many rows, which threads share."""
    found = np.empty((len(x), y.shape[1]), np.result_type(x, y))
    pieces = range(0, len(x), ROWS)
    threads = max(1, min(threads_in_use(), len(pieces)))

    def part(number: int) -> None:
        for at in pieces[number::threads]:
            np.matmul(x[at : at + ROWS], y, out=found[at : at + ROWS])

    with one_blas_thread():
        share(threads, part)
    return found
