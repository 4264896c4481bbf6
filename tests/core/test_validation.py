from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from anarchic.core.validation import check_kind, did_you_mean
from anarchic.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "hint"),
    [(np.int64(3), int), (3, float), (None, int | None), (np.True_, bool), ("x", Sequence[str])],
)
def test_what_fits_passes(value, hint):
    check_kind("rounds", value, hint)


def test_what_does_not_is_told_with_what_would():
    with pytest.raises(ConfigError, match=r"^rounds must be a whole number or None, got '3'\.$"):
        check_kind("rounds", "3", int | None)
    with pytest.raises(ConfigError, match=r"a whole number, got 1000\.0"):
        check_kind("rounds", 1e3, int)


def test_a_name_that_is_near_is_asked_for():
    assert did_you_mean("AFA-DC", ["fedavg", "afa-cd"]) == " Did you mean 'afa-cd'?"
    assert did_you_mean("gpt", ["fedavg", "afa-cd"]) == ""
