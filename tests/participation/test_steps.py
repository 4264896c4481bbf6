import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import ConstantSteps, UniformSteps


def test_constant_steps_are_constant():
    steps = ConstantSteps(5).draw(np.random.default_rng(0), (2, 3))
    assert steps.tolist() == [[5, 5, 5], [5, 5, 5]]
    assert steps.dtype == np.int32
    assert ConstantSteps(5).mean == 5


def test_uniform_steps_cover_1_to_2c_evenly():
    n = 100_000
    steps = UniformSteps(1, 10).draw(np.random.default_rng(0), n)
    assert steps.dtype == np.int32
    values, counts = np.unique(steps, return_counts=True)
    assert values.tolist() == list(range(1, 11))
    assert np.abs(counts - n / 10).max() < 4.5 * np.sqrt(n * 0.1 * 0.9)
    assert UniformSteps(1, 10).mean == 5.5
    assert abs(steps.mean() - 5.5) < 4 * np.sqrt((10**2 - 1) / 12 / n)


def test_uniform_steps_with_c_1_are_one_or_two():
    assert set(UniformSteps(1, 2).draw(np.random.default_rng(0), 100).tolist()) == {1, 2}


def test_less_than_one_step_is_refused():
    with pytest.raises(ConfigError, match=r"ConstantSteps needs c >= 1 .* c=0"):
        ConstantSteps(0)


@pytest.mark.parametrize(("low", "high"), [(0, 2), (3, 2)])
def test_an_impossible_range_is_refused(low, high):
    with pytest.raises(ConfigError, match=rf"UniformSteps needs .* low={low}, high={high}"):
        UniformSteps(low, high)


def test_uniform_steps_draw_the_same_numbers_as_ever():
    """1..2c as NumPy's generator draws them: recorded timetables depend on it."""
    drawn = UniformSteps(1, 10).draw(np.random.default_rng(3), 8)
    assert drawn.tolist() == [9, 1, 2, 3, 2, 9, 9, 6]


def test_the_worker_uses_the_same_classes():
    from anarchic import participation, worker

    for name in ("ConstantSteps", "UniformSteps", "Exponential"):
        assert getattr(worker, name) is getattr(participation, name)
