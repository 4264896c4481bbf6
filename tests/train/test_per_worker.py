"""What workers set aside, and how good a model is for each of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import anarchic
from anarchic import Settings, build, make_task, simulate, simulate_many
from anarchic.data import Dataset, by_role, iid, load_digits
from anarchic.errors import RunError
from anarchic.report.per_worker import plot_workers
from anarchic.report.picture import picture
from anarchic.report.runs import read_run
from anarchic.sim import run, worker_table
from anarchic.sim.record import RunDirectory
from anarchic.sim.worker_table import PerWorker
from anarchic.train.per_worker import HeldOut, hold_out, spread, worker_values

SMALL = Settings(rounds=6, batch=8, eval_every=2, labels_per_worker=2, per_worker=True)


def test_a_fifth_of_each_workers_samples_is_set_aside():
    parts = [np.arange(10), np.arange(10, 13), np.arange(13, 14)]
    kept, aside = hold_out(parts)
    assert aside.counts.tolist() == [2, 1, 0]
    assert [len(part) for part in kept] == [8, 2, 1]
    assert aside.owner.tolist() == [0, 0, 1]
    both = [*np.concatenate(kept), *aside.index]
    assert sorted(both) == list(range(14))
    same = hold_out(parts)[1]
    assert same.index.tolist() == aside.index.tolist()


def test_accuracy_of_each_worker():
    held = HeldOut(np.arange(3), np.array([2, 1, 0]))
    outputs = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    measure, values = worker_values(held, outputs, np.array([0, 1, 1]), None)
    assert measure == "accuracy"
    np.testing.assert_array_equal(values, [0.5, 1.0, np.nan])


def test_loss_of_each_worker_where_there_are_no_classes():
    held = HeldOut(np.arange(3), np.array([2, 0, 1]))
    outputs, targets = np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.0, 0.0])
    loss = lambda o, t: ((o - t) ** 2).mean()  # noqa: E731
    measure, values = worker_values(held, outputs, targets, loss)
    assert measure == "loss"
    np.testing.assert_array_equal(values, [2.5, np.nan, 9.0])


def test_the_worst_tenth_are_those_with_the_lowest_accuracy_or_the_highest_loss():
    values = np.array([*np.linspace(0.1, 2.0, 20), np.nan])
    assert spread("accuracy", values)["workers_worst_tenth"] == pytest.approx(0.15)
    assert spread("loss", values)["workers_worst_tenth"] == pytest.approx(1.95)
    assert spread("loss", values)["workers_mean"] == pytest.approx(1.05)
    assert spread("loss", np.array([np.nan])) == {}


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_workers_are_judged_on_samples_that_they_do_not_train_on(model):
    if model == "mlp":
        pytest.importorskip("torch")
    data = load_digits()
    parts = iid(data.y_train, 10, 0)
    task = make_task(model, data, parts, per_worker=True)
    kept, aside = hold_out(parts)
    assert task.samples.tolist() == [len(part) for part in kept]
    measure, values = task.evaluate_workers(task.init())
    on_these = replace(data, x_test=data.x_train[aside.index], y_test=data.y_train[aside.index])
    whole = make_task(model, on_these, parts).evaluate(task.init())["accuracy"]
    assert measure == "accuracy"
    assert np.average(values, weights=aside.counts) == pytest.approx(whole)
    assert make_task(model, data, parts).evaluate_workers(task.init()) is None


def test_crops_are_for_training_alone():
    pytest.importorskip("torch")
    data = replace(load_digits(), augment="crop-flip")
    parts = iid(data.y_train, 5, 0)
    cropped, plain = (
        make_task("mlp", data, parts, per_worker=True, augment=augment) for augment in (True, False)
    )
    np.testing.assert_array_equal(
        cropped.evaluate_workers(cropped.init())[1], plain.evaluate_workers(plain.init())[1]
    )


def test_a_run_has_mean_worst_tenth_and_spread_and_the_whole_table(tmp_path):
    run = simulate(SMALL, out=tmp_path / "run")
    table = run.per_worker
    assert table.rounds.tolist() == [0, 2, 4, 6]
    assert table.values.shape == (4, 10)
    last = run.metrics[-1]
    assert last["workers_mean"] == pytest.approx(table.values[-1].mean())
    assert last["workers_worst_tenth"] == pytest.approx(table.values[-1].min())
    assert last["workers_spread"] == pytest.approx(table.values[-1].std())
    lines = (tmp_path / "run" / "per_worker.csv").read_text().splitlines()
    assert lines[0] == "round,worker,accuracy"
    assert len(lines) == 1 + 4 * 10
    read = simulate(out=tmp_path / "run", resume=True).per_worker
    np.testing.assert_array_equal(read.values, table.values)
    assert repr(table) == "PerWorker(accuracy of 10 workers, 4 evaluations)"
    assert simulate(replace(SMALL, per_worker=False)).per_worker is None


def test_where_evaluation_is_to_be_cheap_workers_are_judged_at_the_end_alone(tmp_path):
    run = simulate(replace(SMALL, eval_samples=90), out=tmp_path / "run")
    assert run.per_worker.rounds.tolist() == [6]
    known = [row.get("workers_mean") is not None for row in run.metrics]
    assert known == [False, False, False, True]
    rows = RunDirectory(tmp_path / "run").metrics()
    assert [row["workers_mean"] is not None for row in rows] == known
    whole = simulate(SMALL)
    np.testing.assert_array_equal(run.per_worker.values[-1], whole.per_worker.values[-1])


def hospitals(**options):
    """Digits that three hospitals hold, of which one has other labels."""
    digits = load_digits()
    named = np.array(["St. Mary, north", "City", "Lakeside"])
    data = Dataset.of(
        digits.x_train, digits.y_train, owner=named[digits.y_train % 3], test=0.1, name="wards"
    )
    task = make_task("logistic", data, by_role(data), per_worker=True, **options)
    table = anarchic.Sampler(3, 1, anarchic.ConstantSteps(2)).timetable(0, rounds=4)
    return anarchic.Experiment(task, anarchic.AfaCd(1), table, eval_every=2)


@pytest.mark.parametrize("torch", [False, True])
def test_workers_that_are_roles_have_their_names(torch, tmp_path):
    pytest.importorskip("torch")
    run = simulate(hospitals(**({"augment": True} if torch else {})), out=tmp_path / "run")
    names = ("City", "Lakeside", "St. Mary, north")
    assert run.per_worker.names == names
    assert list(run.per_worker.at_end) == list(names)
    lines = (tmp_path / "run" / "per_worker.csv").read_text().splitlines()
    assert lines[0] == "round,worker,name,accuracy"
    assert lines[3].startswith('0,2,"St. Mary, north",')
    read = RunDirectory(tmp_path / "run").per_worker()
    assert (read.names, read.at_end) == (names, run.per_worker.at_end)
    assert worker_table.names(tmp_path / "run" / "per_worker.csv") == names


def test_the_page_of_a_run_names_workers(tmp_path):
    lines = [f"{n % 5},{n % 2},{['City', 'Lake'][n % 2]}\n" for n in range(60)]
    (tmp_path / "wards.csv").write_text("".join(["age,ill,hospital\n", *lines]))
    options = {"path": str(tmp_path / "wards.csv"), "target": "ill", "owner": "hospital"}
    made = Settings(data="csv", data_options=options, m=1, rounds=4, per_worker=True)
    simulate(made, out=tmp_path / "run")
    rows = picture(tmp_path / "run")["workers"]["rows"]
    assert {row["worker"] for row in rows} == {"City", "Lake"}


def test_the_picture_of_workers_names_them(tmp_path):
    pytest.importorskip("matplotlib")
    simulate(hospitals(), out=tmp_path / "run")
    told = plot_workers([read_run(tmp_path / "run")], tmp_path / "workers.svg").read_text()
    assert all(f"<!-- {name} -->" in told for name in ("City", "Lakeside", "St. Mary, north"))


def test_workers_of_several_roles_have_numbers():
    data = hospitals().task._dataset
    task = make_task("logistic", data, iid(data.y_train, 3, 0), per_worker=True)
    assert task.worker_names == ()
    assert PerWorker.of("loss", [(0, np.array([0.5, 0.25]))]).at_end == {0: 0.5, 1: 0.25}


class Cut(Exception):
    pass


def test_a_resumed_run_has_the_same_table(tmp_path):
    def cut(progress):
        if progress.round == 5:
            raise Cut

    whole = simulate(SMALL, out=tmp_path / "whole")
    with pytest.raises(Cut):
        simulate(SMALL, out=tmp_path / "cut", checkpoint_every=3, watch=cut)
    resumed = simulate(out=tmp_path / "cut", resume=True)
    np.testing.assert_array_equal(resumed.per_worker.values, whole.per_worker.values)
    tables = [(tmp_path / name / "per_worker.csv").read_bytes() for name in ("whole", "cut")]
    assert tables[0] == tables[1]


def test_training_on_less_is_another_run(tmp_path):
    simulate(SMALL, out=tmp_path / "run")
    with pytest.raises(RunError, match="per_worker is True there and False here"):
        simulate(replace(SMALL, per_worker=False), out=tmp_path / "run", resume=True)


def test_runs_that_share_a_batch_have_their_own_tables():
    runs = {"two": SMALL, "all": replace(SMALL, labels_per_worker=None, seed=3)}
    together = simulate_many(runs)
    for name, settings in runs.items():
        alone = simulate(build(settings))
        np.testing.assert_allclose(together[name].per_worker.values, alone.per_worker.values)


def test_a_damaged_table_is_named(tmp_path):
    simulate(SMALL, out=tmp_path / "run")
    (tmp_path / "run" / "per_worker.csv").write_text("round,worker,accuracy\n0,0,none\n")
    with pytest.raises(RunError, match=r"per_worker.csv cannot be read"):
        RunDirectory(tmp_path / "run").per_worker()


# Buffers that workers keep to themselves


def scaled(policy, **options):
    """Workers whose inputs have other scales, for a model that begins with a BatchNorm."""
    torch = pytest.importorskip("torch")
    from torch import nn

    digits = load_digits()
    parts = iid(digits.y_train, 4, 0)
    x = digits.x_train.copy()
    for worker, part in enumerate(parts):
        x[part] = x[part] * (1 + 3 * worker) + 3 * worker
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)]
    data = replace(digits, x_train=x)
    task = anarchic.TorchTask(
        nn.Sequential(*layers), data, parts, buffers=policy, per_worker=True, **options
    )
    table = anarchic.Sampler(4, 4, anarchic.ConstantSteps(10)).timetable(0, rounds=30)
    work = anarchic.LocalWork(lr=0.1, batch=32)
    return anarchic.Experiment(task, anarchic.FedAvg(4), table, work, eval_every=15)


@pytest.mark.slow
def test_workers_are_judged_with_the_buffers_that_they_keep():
    average, local = (simulate(scaled(policy)) for policy in ("average", "local"))
    assert local.per_worker.values[-1].min() > 0.8  # the mean of their statistics fits nobody
    assert average.per_worker.values[-1].max() < 0.6
    assert local.metrics[-1]["workers_mean"] > average.metrics[-1]["workers_mean"] + 0.3
    first = [run.per_worker.values[0] for run in (average, local)]  # of the same buffers
    np.testing.assert_array_equal(*first)


def test_own_buffers_take_the_places_of_the_servers():
    experiment = scaled("local")
    task, params = experiment.task, simulate(experiment).params
    assert task.evaluate_workers(params, {})[1].tolist() != (
        task.evaluate_workers(params)[1].tolist()
    )
    one = params[task.layout.buffer_places]
    same = task.evaluate_workers(params, dict.fromkeys(range(4), one))
    np.testing.assert_array_equal(same[1], task.evaluate_workers(params)[1])


@pytest.mark.slow
def test_a_resumed_run_judges_workers_with_the_same_buffers(tmp_path):
    def cut(progress):
        if progress.round == 20:
            raise Cut

    whole = simulate(scaled("local"), out=tmp_path / "whole")
    with pytest.raises(Cut):
        simulate(scaled("local"), out=tmp_path / "cut", checkpoint_every=8, watch=cut)
    resumed = simulate(scaled("local"), out=tmp_path / "cut", resume=True)
    assert resumed.params.tobytes() == whole.params.tobytes()
    tables = [(tmp_path / name / "per_worker.csv").read_bytes() for name in ("whole", "cut")]
    assert tables[0] == tables[1]


@pytest.mark.slow
def test_one_line_says_what_the_common_accuracy_is_of(caplog):
    run._say_own_buffers.cache_clear()
    for policy in ("average", "local", "local"):
        simulate(scaled(policy))
    (told,) = [r.message for r in caplog.records if "buffers='local'" in r.message]
    assert "which no worker has: per_worker=True" in told
