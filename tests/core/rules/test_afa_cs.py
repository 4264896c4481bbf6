import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anarchic import AfaCs, MomentumStep, Updates, wire
from anarchic.core.saving import pack, unpack
from anarchic.errors import ConfigError, UpdateRefused

from ..make import dump, fold, update, vector


def test_afa_cs_steps_along_the_mean_of_all_that_it_remembers():
    rule = AfaCs(m=1)
    state = rule.receive(rule.init(vector(10.0)), update([2.0], "ann", local_lr=0.5))
    assert (state.version, state.params[0]) == (1, 9.0)  # 10 - 1 / 1
    state = rule.receive(state, update([6.0], "bob", local_lr=0.5))
    assert (state.version, state.params[0]) == (2, 7.0)  # 9 - (1 + 3) / 2
    state = rule.receive(state, update([1.0], "ann", local_lr=1.0))
    assert (state.version, state.params[0]) == (3, 5.0)  # 7 - (1 + 3) / 2: ann's row is another


def test_a_known_population_counts_the_silent_as_zero():
    rule = AfaCs(m=1, population=4)
    state = rule.receive(rule.init(vector(10.0)), update([2.0], "ann"))
    assert state.params[0] == 9.5  # 10 - 2 / 4


def test_a_worker_that_reports_twice_in_a_round_has_one_row():
    rule = AfaCs(m=2)
    state = fold(rule, rule.init(vector(0.0)), [update([1.0], "ann"), update([5.0], "ann")])
    assert (state.version, state.params[0], len(state.rows)) == (1, -5.0, 1)


def test_a_chatty_worker_counts_no_more_than_a_quiet_one():
    rule = AfaCs(m=1)
    state = rule.receive(rule.init(vector(0.0)), update([-1.0], "quiet"))
    for version in range(50):
        state = rule.receive(state, update([1.0], "chatty", base_version=version))
    assert state.params[0] == 1.0  # the quiet one's step alone; after that they cancel


def test_a_silent_worker_expires():
    rule = AfaCs(m=1, expire_after=1)
    state = fold(rule, rule.init(vector(0.0)), [update([8.0], "ann"), update([2.0], "bob")])
    assert state.params[0] == -13.0  # -8 - (8 + 2) / 2: ann was silent for one version
    state = rule.receive(state, update([2.0], "bob"))
    assert state.params[0] == -15.0  # for two: bob alone
    assert (len(state.rows), state.total[0]) == (1, 2.0)


def test_expiry_waits_for_a_step():
    rule = AfaCs(m=3, expire_after=1)
    state = fold(rule, rule.init(vector(0.0)), [update([1.0], name) for name in "abc"])
    state = fold(rule, state, [update([1.0], "a")] * 5)
    assert (state.version, sorted(state.rows.pack()[1]["workers"])) == (2, ["a", "b", "c"])
    state = rule.receive(state, update([1.0], "a"))
    assert (state.version, state.rows.pack()[1]["workers"]) == (3, ["a"])


def test_a_forgotten_worker_weighs_nothing():
    rule = AfaCs(m=3)
    state = fold(rule, rule.init(vector(0.0)), [update([0.1], "ann"), update([0.2], "bob")])
    assert rule.forget(state, "ann")
    assert not rule.forget(state, "nobody")
    state = rule.receive(state, update([0.2], "cleo"))
    assert state.params[0] == pytest.approx(-0.2)


def test_the_memory_of_nobody_is_exactly_nothing():
    """0.1 + 0.2 - 0.1 - 0.2 is not zero."""
    rule = AfaCs(m=9)
    state = fold(rule, rule.init(vector(0.0)), [update([0.1], "ann"), update([0.2], "bob")])
    rule.forget(state, "ann")
    rule.forget(state, "bob")
    assert state.total[0] == 0.0
    assert rule.flush(state).params[0] == 0.0


def test_newcomers_beyond_the_population_are_refused():
    rule = AfaCs(m=10, population=2)
    state = fold(rule, rule.init(vector(0.0)), [update([1.0], "ann"), update([1.0], "bob")])
    before = dump(state)
    with pytest.raises(UpdateRefused, match="'cleo' would be one too many"):
        rule.receive(state, update([1.0], "cleo"))
    with pytest.raises(UpdateRefused, match="population of 2 workers"):
        rule.receive_many(state, Updates.of([update([1.0], "ann"), update([1.0], "cleo")]))
    assert dump(state) == before
    rule.receive(state, update([1.0], "ann"))  # who has a row may replace it
    rule.forget(state, "bob")
    assert len(rule.receive(state, update([1.0], "cleo")).rows) == 2


def test_a_newcomer_beyond_the_cap_takes_the_place_of_the_longest_silent():
    rule = AfaCs(m=1, cap=2)
    state = rule.init(vector(0.0))
    for worker, direction, rows, param in (
        ("ann", 1.0, {"ann"}, -1.0),
        ("bob", 3.0, {"ann", "bob"}, -3.0),  # the mean of 1 and 3
        ("ann", 5.0, {"ann", "bob"}, -7.0),  # of 5 and 3
        ("cleo", 7.0, {"ann", "cleo"}, -13.0),  # of 5 and 7: bob was silent for longer
    ):
        state = rule.receive(state, update([direction], worker))
        assert (set(state.rows.pack()[1]["workers"]), state.params[0]) == (rows, param)


@pytest.mark.parametrize("population", [None, 3])  # nobody is refused: the cap keeps to it
@pytest.mark.parametrize("m", [1, 2, 3, 10])
def test_a_block_beyond_the_cap_is_folded_as_one_by_one(m, population):
    rule = AfaCs(m=m, cap=3, population=population)
    updates = [update([float(i)], name) for i, name in enumerate("abcadbeafghaab")]
    block = rule.receive_many(rule.init(vector(0.0)), Updates.of(updates))
    assert dump(block) == dump(fold(rule, rule.init(vector(0.0)), updates))
    assert len(block.rows) == 3


def test_a_block_may_name_one_newcomer_often():
    rule = AfaCs(m=10, population=1)
    state = rule.receive_many(rule.init(vector(0.0)), Updates.of([update([1.0], "ann")] * 5))
    assert len(state.rows) == 1


def test_the_order_of_the_rows_survives_saving(tmp_path):
    """Whoever was silent longest expires first, before and after."""
    rule = AfaCs(m=2, step=MomentumStep(), expire_after=2)
    state = rule.init(vector(0.0, dtype="f4"))
    for name in ("cleo", "ann", "bob", "cleo", "dan"):
        state = rule.receive(state, update([1.0], name, dtype="f4"))
    wire.write(tmp_path / "state", *pack(state))
    loaded = unpack(rule.init(vector(0.0, dtype="f4")), *wire.read(tmp_path / "state"))
    assert loaded.rows.pack()[1] == {"workers": ["ann", "bob", "cleo", "dan"]}
    assert loaded.rows.longest_silent() == state.rows.longest_silent() == ("ann", 0)
    assert dump(loaded) == dump(state)


def test_a_block_hears_old_and_new_workers_in_its_order():
    rule = AfaCs(m=9)
    state = rule.receive(rule.init(vector(0.0)), update([1.0], "ann"))
    block = [update([2.0], "bob"), update([4.0], "ann"), update([8.0], "bob")]
    state = rule.receive_many(state, Updates.of(block))
    assert state.rows.pack()[1]["workers"] == ["ann", "bob"]
    assert state.total[0] == 12.0
    state = rule.receive_many(state, Updates.of([update([1.0], "ann"), update([1.0], "cleo")]))
    assert state.rows.pack()[1]["workers"] == ["bob", "ann", "cleo"]
    assert state.total[0] == 10.0


names = st.sampled_from([f"w{i}" for i in range(8)])
actions = st.lists(
    st.tuples(st.sampled_from(["report"] * 5 + ["forget"]), names, st.integers(0, 2**32 - 1)),
    max_size=80,
)


@given(actions=actions, expire_after=st.sampled_from([None, 1, 3]))
@settings(max_examples=60)
def test_the_running_total_is_the_sum_of_the_rows(actions, expire_after):
    rule = AfaCs(m=3, expire_after=expire_after)
    state = rule.init(np.zeros(4, np.float32))
    expected = {}  # the rows as they must be, kept the simple way
    heard = {}
    for action, worker, seed in actions:
        if action == "forget":
            rule.forget(state, worker)
            expected.pop(worker, None)
            continue
        rng, version = np.random.default_rng(seed), state.version
        direction = (rng.normal(size=4) * 10.0 ** rng.integers(-3, 4)).astype(np.float32)
        state = rule.receive(state, update(direction, worker, local_lr=0.5, dtype="f4"))
        expected[worker], heard[worker] = np.float32(0.5) * direction, version
        if state.version > version and expire_after is not None:
            expected = {w: r for w, r in expected.items() if version - heard[w] <= expire_after}
    arrays, numbers = state.rows.pack()
    assert set(numbers["workers"]) == set(expected)
    for worker, row in zip(numbers["workers"], arrays["rows"], strict=True):
        assert row.tobytes() == expected[worker].tobytes()
    fresh = arrays["rows"].astype(np.float64).sum(0)
    np.testing.assert_allclose(state.total, fresh, rtol=0, atol=1e-10)  # rows are below 1e4


@pytest.mark.parametrize("name", ["population", "expire_after", "cap"])
def test_limits_must_be_positive(name):
    with pytest.raises(ConfigError, match=f"{name} >= 1"):
        AfaCs(m=1, **{name: 0})


class Counted:
    """Rows that count what is asked of them."""

    def __init__(self, rows):
        self.rows, self.calls = rows, []

    def __len__(self):
        return len(self.rows)

    def __contains__(self, worker):
        self.calls.append("in")
        return worker in self.rows

    def __getitem__(self, worker):
        self.calls.append("get")
        return self.rows[worker]

    def __getattr__(self, name):
        self.calls.append(name)
        return getattr(self.rows, name)


@pytest.mark.parametrize("workers", [10, 1000])
def test_an_update_touches_one_row_however_many_there_are(workers):
    rule = AfaCs(m=1, expire_after=10**6, cap=workers)
    state = rule.init(vector(0.0))
    for index in range(workers):
        state = rule.receive(state, update([1.0], str(index)))
    state.rows = Counted(state.rows)
    state = rule.receive(state, update([1.0], "3"))  # checked for room, replaced, stepped
    assert sorted(state.rows.calls) == ["get", "in", "in", "longest_silent", "put"]


def test_a_block_does_not_count_on_room_that_expiry_would_make():
    """One by one they are taken: by the time that cleo comes, ann has expired."""
    rule = AfaCs(m=1, expire_after=1, population=2)
    bobs = [update([1.0], "bob")] * 2
    state = fold(rule, rule.init(vector(0.0)), [update([1.0], "ann")])
    with pytest.raises(UpdateRefused):
        rule.receive_many(state, Updates.of([*bobs, update([1.0], "cleo")]))
    state = fold(rule, state, [*bobs, update([1.0], "cleo")])
    assert state.rows.pack()[1]["workers"] == ["bob", "cleo"]
