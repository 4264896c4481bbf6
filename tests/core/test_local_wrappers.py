import numpy as np
import pytest

from anarchic import Adam, ClipNorm, Decay, Layout, Momentum, Scaffold, Sgd, VisitStart
from anarchic.core.local import begun, take_local_steps
from anarchic.errors import ConfigError

LAYOUT = Layout.of({"x": ((2,), "F64")})


def visit(rule, gradients, version=0, start=(0.0, 0.0)):
    """The result of one visit with these gradients."""
    start = np.array(start)
    return take_local_steps(
        begun(rule, VisitStart(0.5, version, LAYOUT)),
        start,
        dict.fromkeys((*rule.scratch, *rule.keeps, *rule.shares), 0 * start),
        lr=0.5,
        gradient=lambda x, k: np.array(gradients[k]),
        more=lambda done: done < len(gradients),
    )


def test_a_long_gradient_is_cut_to_the_bound_and_a_short_one_is_left():
    rule = ClipNorm(5.0)
    assert rule.step(np.array([6.0, 8.0]), None, None, {}).tolist() == [3.0, 4.0]
    short = np.array([0.3, 4.1])
    assert rule.step(short, None, None, {}).tolist() == short.tolist()
    assert rule.step(np.zeros(2), None, None, {}).tolist() == [0.0, 0.0]


def test_lanes_are_clipped_each_by_its_own_norm():
    torch = pytest.importorskip("torch")
    lanes = np.array([[6.0, 8.0], [0.6, 0.8]], np.float32)
    found = ClipNorm(5.0).step(lanes, None, None, {})
    assert found.tolist() == [[3.0, 4.0], lanes[1].tolist()]
    assert found.dtype == np.float32
    assert ClipNorm(5.0).step(torch.tensor(lanes), None, None, {}).tolist() == found.tolist()


def test_squares_that_overflow_are_clipped_all_the_same():
    found = ClipNorm(1.0).step(np.full(4, 1e30, np.float32), None, None, {})
    np.testing.assert_allclose(found, 0.5, rtol=1e-6)


def test_a_gradient_that_is_not_finite_is_not_hidden():
    with np.errstate(invalid="ignore"):
        assert np.isnan(ClipNorm(1.0).step(np.array([np.inf, 1.0]), None, None, {})).any()


def test_the_rule_within_sees_clipped_gradients():
    # 3 and 4 of the clipped gradient, then velocity 0.5 * v + g
    found = visit(ClipNorm(5.0, Momentum(0.5)), [[6.0, 8.0], [0.0, 0.0]])
    assert found.direction.tolist() == [(3 + 1.5) / 2, (4 + 2) / 2]


@pytest.mark.parametrize("rule", [Sgd(), Adam(), Momentum(0.5)], ids=repr)
@pytest.mark.parametrize("around", [lambda r: ClipNorm(float("inf"), r), lambda r: Decay(rule=r)])
def test_wrappers_that_change_nothing_give_the_same_bytes(rule, around):
    gradients = np.random.default_rng(0).normal(size=(5, 2)).tolist()
    wrapped = around(rule)
    assert wrapped.plain == rule.plain  # so that whole visits are computed at once, too
    found, plain = visit(wrapped, gradients, version=7), visit(rule, gradients)
    assert found.direction.tobytes() == plain.direction.tobytes()


def test_the_rate_decays_over_steps_and_versions():
    # Factors 1/4, then half of it, then the floor instead of 1/16.
    rule = Decay(per_step=0.5, per_version=0.5, floor=0.1)
    found = visit(rule, [[8.0, 0.0]] * 3, version=2)
    np.testing.assert_allclose(found.direction, [8 * (0.25 + 0.125 + 0.1) / 3, 0])


def test_a_rule_can_be_used_for_many_visits():
    rule = Decay(per_step=0.5)
    first, second = (visit(rule, [[8.0, 0.0]] * 2).direction.tolist() for _ in range(2))
    assert first == second == [6.0, 0.0]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_lanes_decay_each_by_its_own_version(kind):
    array = np.array if kind == "numpy" else pytest.importorskip("torch").tensor
    start = VisitStart(np.full((3, 1), 0.5), np.array([[0], [1], [2]]), LAYOUT)
    rule = begun(Decay(per_step=0.5, per_version=0.1), start)
    ones = array([[1.0, 1.0]] * 3)
    np.testing.assert_allclose(rule.step(ones, ones, ones, {})[:, 0], [1, 0.1, 0.01])
    two = ones[:2]  # the third visit has ended
    np.testing.assert_allclose(rule.step(two, two, two, {})[:, 0], [0.5, 0.05])


def test_wrappers_hold_what_is_within():
    rule = ClipNorm(1.0, Decay(0.5, rule=Scaffold(option=1)))
    assert (rule.keeps, rule.shares, rule.scratch) == (
        ("own_control",),
        ("control",),
        ("at_start",),
    )
    assert not rule.plain
    found = visit(rule, [[0.5, 0.0]])
    assert found.sent["control"].tolist() == found.kept["own_control"].tolist() == [0.5, 0.0]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ClipNorm(0.0), "max_norm=0.0"),
        (lambda: ClipNorm(float("nan")), "max_norm=nan"),
        (lambda: Decay(per_step=1.5), "per_step=1.5"),
        (lambda: Decay(per_version=0.0), "per_version=0.0"),
        (lambda: Decay(floor=-1.0), "floor=-1.0"),
        (lambda: Decay(0.5).step(np.ones(2), None, None, {}), "call its begin"),
    ],
)
def test_what_cannot_be_right_is_refused(make, says):
    with pytest.raises(ConfigError, match=says):
        make()
