"""How far an update can move the model, by hand."""

from __future__ import annotations

import pytest

from anarchic.core.influence import lengths_of
from anarchic.core.rules import AfaCd, AfaCs, FedBuff
from anarchic.core.wrappers import LEAST, Clip, StalenessDiscount


@pytest.mark.parametrize(
    ("rule", "folded"),
    [
        (AfaCd(m=2), 8.0),
        (AfaCs(m=2), 8.0),
        (StalenessDiscount(AfaCd(m=2), 1.0), 2.0),  # 8 / (1 + 3)
        (Clip(AfaCd(m=2), 4.0), 4.0),
        (Clip(StalenessDiscount(AfaCd(m=2), 1.0), 4.0), 1.0),  # clipped first, then discounted
    ],
)
def test_an_update_is_as_long_as_the_rule_folds_it(rule, folded):
    found = lengths_of(rule)(0.1, 5, 3, 8.0, 1.0)
    assert found == pytest.approx((8.0, folded))


def test_fedbuff_takes_local_steps_times_the_norm_and_discounts_by_itself():
    found = lengths_of(FedBuff(m=2, power=0.5))(0.1, 5, 3, 8.0, 1.0)
    assert found == pytest.approx((40.0, 20.0))  # 40 / sqrt(1 + 3)


def test_what_the_guard_took_away_does_not_count():
    assert lengths_of(AfaCd(m=2))(0.1, 5, 3, 8.0, 0.25) == pytest.approx((8.0, 2.0))


def test_the_smallest_rate_of_all_gives_no_infinity():
    assert lengths_of(AfaCd(m=2))(LEAST, 5, 0, 1.0, 1.0) == (1.0, 0.0)
