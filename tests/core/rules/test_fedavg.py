import pytest

from anarchic import FedAvg, Updates
from anarchic.errors import MalformedUpdate, StaleUpdate

from ..make import dump, fold, update, vector


def test_fedavg_is_the_mean_of_the_workers_models():
    rule = FedAvg(m=2)
    updates = [
        update([1.0], local_steps=4, local_lr=0.5),  # ends at 10 - 4 * 0.5 * 1 = 8
        update([3.0], local_steps=2, local_lr=0.5),  # ends at 10 - 2 * 0.5 * 3 = 7
    ]
    assert fold(rule, rule.init(vector(10.0)), updates).params[0] == 7.5


def test_by_samples_weighs_by_the_share_of_samples():
    rule = FedAvg(m=2, by_samples=True)
    updates = [update([2.0], samples=1), update([6.0], samples=3)]  # models 8 and 4
    assert fold(rule, rule.init(vector(10.0)), updates).params[0] == 5.0  # (8 + 3 * 4) / 4


def test_by_samples_refuses_an_update_that_does_not_say_how_many():
    rule = FedAvg(m=2, by_samples=True)
    state = rule.receive(rule.init(vector(0.0)), update([1.0], samples=1))
    before = dump(state)
    for send in (rule.receive, lambda s, u: rule.receive_many(s, Updates.of([u]))):
        with pytest.raises(MalformedUpdate, match="by_samples=False"):
            send(state, update([1.0]))
    assert dump(state) == before


def test_a_late_update_is_refused():
    rule = FedAvg(m=1)
    state = rule.receive(rule.init(vector(0.0)), update([1.0]))
    with pytest.raises(StaleUpdate, match="from versions 1 to 1"):
        rule.receive(state, update([1.0], base_version=0))
    with pytest.raises(StaleUpdate):
        rule.receive_many(state, Updates.of([update([1.0], base_version=1)] * 2))
    assert (state.version, state.params[0]) == (1, -1.0)
