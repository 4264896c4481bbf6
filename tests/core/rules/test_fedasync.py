import pytest

from anarchic import FedAsync, Updates
from anarchic.errors import ConfigError, StaleUpdate

from ..make import dump, fold, update, vector


def test_fedasync_mixes_in_the_workers_model():
    rule = FedAsync(mixing=0.5)
    state = rule.receive(rule.init(vector(10.0)), update([2.0], local_steps=2))
    assert (state.version, state.params[0]) == (1, 8.0)  # half of 10 and of 10 - 2 * 2


def test_a_late_model_counts_from_the_version_that_was_pulled_and_mixes_in_less():
    rule = FedAsync(mixing=1.0, power=0.5)
    state = rule.init(vector(10.0))
    state = fold(rule, state, [update([4.0], base_version=0)])  # to 6
    for version in (1, 2):
        state = rule.receive(state, update([0.0], base_version=version))  # stays at 6
    # three versions late: weight 1 / sqrt(4); the worker's model is 10 - 2
    state = rule.receive(state, update([2.0], base_version=0))
    assert state.params[0] == 7.0  # half of 6 and of 8


def test_only_the_newest_versions_are_kept():
    rule = FedAsync(history=2)
    state = fold(rule, rule.init(vector(0.0)), [update([1.0], base_version=v) for v in range(3)])
    assert list(state.history) == ["2", "3"]
    assert state.history["3"] is state.params
    rule.receive(state, update([1.0], base_version=2))
    before = dump(state)
    with pytest.raises(StaleUpdate, match="versions 3 to 4"):
        rule.receive(state, update([1.0], base_version=2))
    with pytest.raises(StaleUpdate):
        rule.receive_many(state, Updates.of([update([1.0], base_version=3)] * 3))
    assert dump(state) == before


@pytest.mark.parametrize(
    "settings", [{"mixing": 0}, {"mixing": 1.1}, {"power": -1}, {"history": 0}], ids=str
)
def test_settings_are_checked(settings):
    with pytest.raises(ConfigError, match="FedAsync needs"):
        FedAsync(**settings)


@pytest.mark.parametrize(("staleness", "share"), [(0, 1), (4, 1), (5, 1 / 11), (6, 1 / 21)])
def test_the_hinge_discounts_only_beyond_its_start(staleness, share):
    assert FedAsync(discount="hinge").discounted(staleness) == pytest.approx(share)


def test_a_hinge_that_never_starts_is_the_constant_discount():
    constant, hinge = FedAsync(power=0.0), FedAsync(discount="hinge", hinge_start=1000)
    assert [constant.discounted(n) for n in range(9)] == [hinge.discounted(n) for n in range(9)]
    with pytest.raises(ConfigError, match="hinge_slope > 0"):
        FedAsync(discount="hinge", hinge_slope=0)
