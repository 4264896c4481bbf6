import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import (
    ConstantSteps,
    ContinuousTime,
    Epochs,
    Exponential,
    ExponentialTime,
    LogNormalTime,
    Sampler,
    SpeedClasses,
    Synchronous,
    UniformSteps,
    Work,
    make_timetable,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_work_time_is_steps_times_step_time_times_speed():
    work = Work(ConstantSteps(4), step_s=0.5)
    factor = np.array([1.0, 3.0])
    steps = np.array([4, 4], np.int32)
    assert work.draw_seconds(rng(), steps, factor).tolist() == [2.0, 6.0]


@pytest.mark.parametrize(
    ("distribution", "variance"),
    [(ExponentialTime(), 1.0), (LogNormalTime(0.5), np.exp(0.25) - 1)],
)
def test_time_distributions_have_mean_1(distribution, variance):
    n = 200_000
    factors = distribution.draw(rng(), n)
    assert abs(factors.mean() - 1) < 4 * np.sqrt(variance / n)
    assert abs(factors.var() / variance - 1) < 0.05


def test_speed_classes_are_drawn_by_their_shares():
    n = 100_000
    factor = SpeedClasses({"fast": (0.2, 0.5), "none": (0.0, 7.0), "slow": (0.8, 2.0)}).draw(
        rng(), n
    )
    assert set(factor.tolist()) == {0.5, 2.0}
    assert abs((factor == 0.5).mean() - 0.2) < 4 * np.sqrt(0.2 * 0.8 / n)


def test_pace_is_that_of_the_mean_rate():
    work = Work(
        UniformSteps(1, 4), step_s=2.0, speeds=SpeedClasses({"a": (0.5, 1.0), "b": (0.5, 3.0)})
    )
    # Mean K is 2.5: cycles of 5 + 5 and of 5 + 15 seconds, rates 1/10 and 1/20.
    assert work.pace_s(5.0) == pytest.approx(1 / (0.5 / 10 + 0.5 / 20))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Work(ConstantSteps(1), step_s=0.0),
            r"0 < step_s < inf \(seconds per local step\), got 0.0",
        ),
        (lambda: LogNormalTime(0.0), "sigma > 0, got 0.0"),
        (lambda: Epochs(0, 4, [1]), "epochs=0, batch=4 and 1 workers"),
        (lambda: Epochs(1, 4, []), "and 0 workers"),
        (lambda: Epochs(1, 4, [3, 0]), "Worker 1 has no sample"),
        (lambda: Epochs(1, 4, [3]).of(rng(), np.array([1])), "samples of 1 workers.*worker 1"),
        (lambda: Epochs(1, 4, [3]).draw(rng(), 2), "whose visits they are"),
        (lambda: SpeedClasses({}), "at least one class"),
        (lambda: SpeedClasses({"a": (0.5, 1.0)}), "sum to 1, got 0.5"),
        (lambda: SpeedClasses({"a": (1.0, 0.0)}), "'a' has share 1.0 and factor 0.0"),
        (lambda: SpeedClasses({"a": (-0.5, 1.0), "b": (1.5, 1.0)}), "'a' has share -0.5"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


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


SAMPLES = [10, 3, 8]
EPOCHS = Epochs(2, batch=4, samples=SAMPLES)


def test_epochs_are_as_many_steps_as_batches():
    assert EPOCHS.steps.tolist() == [6, 2, 4]  # 2 * ceil(10 / 4) and so on
    assert EPOCHS.mean == 4.0


@pytest.mark.parametrize(
    "table",
    [
        lambda: Sampler(3, 2, EPOCHS, max_staleness=1).timetable(0, 20),
        lambda: Synchronous(3, 2, Work(EPOCHS, 0.5), 0.3, timeout_s=9.0).timetable(0, 20),
        lambda: make_timetable(
            ContinuousTime(Exponential(1.0), Work(EPOCHS, 0.5)), workers=3, m=2, rounds=20, rng=0
        ),
    ],
    ids=["sampler", "synchronous", "continuous"],
)
def test_every_process_asks_whose_epochs_they_are(table):
    made = table()
    assert set(made.worker.tolist()) == {0, 1, 2}
    assert made.local_steps.tolist() == EPOCHS.steps[made.worker].tolist()


def test_epochs_take_as_long_as_their_steps():
    process = ContinuousTime(Exponential(1.0), Work(EPOCHS, 0.5))
    table = make_timetable(process, workers=3, m=2, rounds=20, rng=0)
    np.testing.assert_allclose(table.push_s - table.pull_s, 0.5 * EPOCHS.steps[table.worker])
