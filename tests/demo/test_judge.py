from __future__ import annotations

import numpy as np
import pytest

from anarchic.core.types import Snapshot
from anarchic.demo.judge import digits
from anarchic.worker import digits_task


def test_a_model_that_knows_nothing_takes_one_digit_for_all():
    layout = digits_task("digits:1/8").layout
    found = digits(Snapshot(0, np.zeros(layout.dim, np.float32), layout=layout))
    assert found["loss"] == pytest.approx(np.log(10), abs=1e-5)
    assert 0.08 < found["accuracy"] < 0.12
