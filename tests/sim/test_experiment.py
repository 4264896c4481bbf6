"""What an experiment refuses before it is run, and what tells it from another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anarchic import (
    AfaCd,
    Batched,
    Experiment,
    LocalWork,
    Loop,
    Prox,
    Scaffold,
    Sgd,
    SharedVectors,
    make_task,
)
from anarchic.data import iid, load_digits, random_quadratics
from anarchic.errors import ConfigError
from anarchic.participation import ConstantSteps, Sampler
from anarchic.train.quadratic import QuadraticTask

WORKERS = 6


def task(**options):
    return QuadraticTask(random_quadratics(WORKERS, 4, **options))


def table(m=3, workers=WORKERS):
    return Sampler(workers, m, ConstantSteps(1)).timetable(0, 2)


def test_a_timetable_for_another_m_is_refused():
    with pytest.raises(ConfigError, match=r"every 2 updates.*made for 3.*m=2"):
        Experiment(task(), AfaCd(2), table(m=3))


def test_more_workers_than_data_are_refused():
    with pytest.raises(ConfigError, match=r"7 workers.*only 6"):
        Experiment(task(), AfaCd(3), table(workers=WORKERS + 1))


def test_data_that_no_worker_of_the_timetable_has_are_told_once(caplog):
    data = load_digits()
    owned = make_task("logistic", data, iid(data.y_train, 7, 0))
    experiment = Experiment(owned, AfaCd(3), table(workers=5))
    replace(experiment, seed=1)
    Experiment(owned, AfaCd(3), table(workers=7))
    unused = owned.samples[5:].sum()
    (line,) = [each for each in caplog.records if each.name == "anarchic.train"]
    assert line.getMessage() == (
        "The timetable has 5 workers and the task has data for 7: 2 parts with "
        f"{unused} training samples are never used."
    )


def test_more_workers_than_local_work_are_refused():
    with pytest.raises(ConfigError, match=r"6 workers, but only 2"):
        Experiment(task(), AfaCd(3), table(), work=[LocalWork(), LocalWork()])


def test_shared_vectors_need_a_rule_that_carries_them_and_workers_that_share_them():
    carry = SharedVectors(AfaCd(3), names=("control",), population=WORKERS)
    with pytest.raises(ConfigError, match=r"share control, which the rule does not carry"):
        Experiment(task(), AfaCd(3), table(), LocalWork(Scaffold()))
    with pytest.raises(ConfigError, match=r"carries control, which no worker's local rule shares"):
        Experiment(task(), carry, table(), LocalWork(Sgd()))
    some = [LocalWork(Scaffold()), *[LocalWork(Sgd())] * (WORKERS - 1)]
    Experiment(task(), carry, table(), some)  # one that does is enough


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"eval_every": 0}, "eval_every must be at least 1"),
        ({"eval_samples": 0}, "eval_samples must be at least 1 test sample, got 0"),
        ({"target_accuracy": 1.5}, "at most 1, got 1.5"),
        ({"lookahead": 0}, "lookahead must be at least 1"),
    ],
)
def test_an_impossible_schedule_is_refused(option, says):
    with pytest.raises(ConfigError, match=says):
        Experiment(task(), AfaCd(3), table(), **option)


def test_a_fingerprint_changes_with_the_data():
    def fingerprint(**options):
        return Experiment(task(**options), AfaCd(3), table()).fingerprint()

    assert fingerprint(seed=1) == fingerprint(seed=1)
    assert len({fingerprint(seed=1), fingerprint(seed=2), fingerprint(seed=1, noise=0.5)}) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"rule": AfaCd(3, server_lr=2.0)},
        {"work": LocalWork(lr=0.2)},
        {"work": LocalWork(Prox(0.2))},
        {"seed": 1},
        {"backend": Loop()},
        {"lookahead": 7},
    ],
    ids=" ".join,
)
def test_a_fingerprint_changes_with_whatever_changes_the_bytes(change):
    """And of nothing else: a run may go on with another schedule, or under another description."""
    plain = Experiment(task(), AfaCd(3), table(), backend=Batched())
    other = replace(plain, eval_every=2, threads=2, about={"seed": 3})
    assert other.fingerprint() == plain.fingerprint()
    assert replace(plain, **change).fingerprint() != plain.fingerprint()


@pytest.mark.parametrize(
    ("rounds", "every", "last10", "versions"),
    [
        (30, 7, False, {0, 7, 14, 21, 28, 30}),
        (30, 7, True, {0, 7, 14, *range(21, 31)}),
        (4, 3, False, {0, 3, 4}),
        (4, 3, True, {0, 1, 2, 3, 4}),
        (200, None, False, {*range(0, 201, 4)}),  # fifty, and the last
        (200, None, True, {*range(0, 200, 4), *range(191, 201)}),  # fifty, and the last ten
    ],
)
def test_every_nth_version_and_the_last_are_evaluated(rounds, every, last10, versions):
    made = Sampler(WORKERS, 3, ConstantSteps(1)).timetable(0, rounds)
    asked = Experiment(task(), AfaCd(3), made, eval_every=every, last10=last10)
    assert asked.evaluated == versions


@pytest.mark.parametrize("asked", [{"eval_samples": 3}, {"metrics": {"f1": max}}])
def test_a_task_without_predictions_has_no_metrics_of_test_samples(asked):
    with pytest.raises(ConfigError, match="QuadraticTask shows no predictions for test samples"):
        Experiment(task(), AfaCd(3), table(), **asked)
