from __future__ import annotations

import pytest

from anarchic.kernels.chunks import threads_in_use, use_threads
from anarchic.study.machine import hardware


@pytest.fixture
def three_threads():
    before = threads_in_use()
    use_threads(3)
    yield
    use_threads(before)


def test_the_threads_of_compiled_visits_count(three_threads):
    torch = pytest.importorskip("torch")
    found = hardware("cpu")
    assert found["most_threads"] == max(3, torch.get_num_threads())
    assert found["name"]
