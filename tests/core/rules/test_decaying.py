from anarchic import Clip, SharedVectors

from ..make import fold, update, vector
from .decaying import Decaying


def test_workers_weigh_less_the_more_often_they_came_and_the_rate_falls():
    rule = Decaying(m=1, beta=0.0, decay=0.5, least=0.1, period=3)
    state = rule.receive(rule.init(vector(10.0)), update([2.0], "ann"))
    assert state.params[0] == 8.0  # 10 - 1 * 1 * 2
    state.steps = 9  # a rate of 1 / sqrt(1 + 9 / 3)
    state = rule.receive(state, update([2.0], "ann", base_version=1))
    assert state.params[0] == 7.5  # 8 - 1/2 * 1/2 * 2: her second visit
    state.steps = 0
    state = rule.receive(state, update([2.0], "bob", base_version=1))
    assert state.params[0] == 5.5  # his first


def test_what_is_kept_of_a_worker_is_a_moving_mean():
    rule = Decaying(m=9, beta=0.75)
    state = fold(rule, rule.init(vector(0.0)), [update([4.0], "ann"), update([8.0], "ann")])
    assert state.means["ann"].tolist() == [5.0]  # 3/4 of 4 and 1/4 of 8
    assert state.visits["ann"].tolist() == [1.0]


def test_a_worker_is_forgotten_in_all_that_is_kept_of_it():
    for wrapped in (Decaying(m=9), Clip(Decaying(m=9), 5.0)):
        state = fold(wrapped, wrapped.init(vector(0.0)), [update([4.0], "ann")])
        assert wrapped.forget(state, "ann")
        assert not wrapped.forget(state, "ann")
        assert (len(state.means), len(state.visits)) == (0, 0)


def test_rows_have_the_names_that_they_are_packed_under():
    rule = SharedVectors(Decaying(m=9), ("control",), population=4)
    assert list(rule.rows(rule.init(vector(0.0)))) == ["inner.means", "inner.visits"]
    assert rule.remembers is None
