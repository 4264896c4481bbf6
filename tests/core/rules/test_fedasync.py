import pytest

from anarchic import FedAsync
from anarchic.errors import ConfigError

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


def test_of_an_older_version_than_those_kept_the_oldest_is_taken():
    rule = FedAsync(mixing=1.0, history=2, power=0.0)
    state = fold(rule, rule.init(vector(8.0)), [update([1.0], base_version=v) for v in range(3)])
    state = rule.receive(state, update([1.0], base_version=0))  # 6 - 1, and not 8 - 1
    assert (state.params[0], list(state.history)) == (5.0, ["2", "3"])


def test_a_model_that_got_another_number_is_found_by_it():
    rule = FedAsync(mixing=1.0, power=0.0)
    state = rule.init(vector(8.0))
    state.version = 7  # as after a rollback
    state = fold(rule, state, [update([1.0], base_version=7), update([2.0], base_version=8)])
    assert (state.params[0], list(state.history)) == (5.0, ["7", "8"])


def test_versions_are_not_taken_for_workers():
    rule = FedAsync()
    state = rule.receive(rule.init(vector(8.0)), update([1.0], worker="0"))
    before = dump(state)
    assert not rule.forget(state, "0")
    assert (rule.remembers, dump(state)) == (0, before)


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
