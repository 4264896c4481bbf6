import json
from contextlib import closing
from dataclasses import replace
from math import log

import numpy as np
import pytest

from anarchic import (
    AfaCd,
    AfaCs,
    Clip,
    Compute,
    Experiment,
    FedAvg,
    FedBuff,
    LocalWork,
    Loop,
    Prox,
    Settings,
    build,
    simulate,
)  # fmt: skip
from anarchic.data import Dataset, Quadratics
from anarchic.errors import ConfigError, RunError
from anarchic.models import make
from anarchic.participation import ConstantSteps, Sampler, Timetable, UniformSteps
from anarchic.participation.timetable import running_numbers
from anarchic.server.store import open_store
from anarchic.sim.record import RunDirectory
from anarchic.sim.settings import partition
from anarchic.theory import (
    KnownNumbers,
    as_dict,
    calculate,
    judge,
    judge_experiment,
    measure,
)
from anarchic.theory.recorded import experiment_of
from anarchic.theory.report import Report, model_at, training_loss
from anarchic.train.quadratic import QuadraticTask
from tests.server.make import begun
from tests.server.test_history import train

WORKERS = 5
BIASED = (0.6, 0.25, 0.05, 0.05, 0.05)


def experiment(rule, *, work=None, steps=None, probabilities=None, rounds=100):
    optima = np.random.default_rng(0).normal(size=(WORKERS, 3))
    task = QuadraticTask(Quadratics(np.full((WORKERS, 3), 2.0), optima, noise=0.5))
    sampler = Sampler(
        WORKERS, rule.m, steps or ConstantSteps(3), replace=True, probabilities=probabilities
    )
    table = sampler.timetable(1, rounds)
    return Experiment(task, rule, table, work or LocalWork(lr=0.001, batch=1))


def report(rule, known=None, **other):
    run = experiment(rule, **other)
    return judge_experiment(run, [run.task.init()], known=known, repeats=4)


def theorems(found):
    return [verdict.theorem for verdict in found.verdicts]


def test_equally_likely_workers_come_under_theorems_2_and_3():
    found = report(AfaCd(2, server_lr=20.0))
    assert theorems(found) == [2, 3]
    assert found.verdicts[0].holds
    assert found.problem.smoothness == pytest.approx(2, rel=0.02)
    assert found.problem.sigma_local == pytest.approx(0.5, rel=0.6)
    assert (found.rates.server_lr, found.rates.local_lr) == (20, 0.001)
    assert found.arrivals.steps_max == 3
    assert any("leaves out the variance" in warning for warning in found.warnings)
    assert len(found.squared_gradients) == 1


def test_biased_arrivals_are_warned_of_and_afa_cs_is_advised():
    found = report(AfaCd(2, server_lr=20.0), probabilities=BIASED)
    assert theorems(found) == [2]
    square = found.problem.sigma_global**2
    warning = next(w for w in found.warnings if w.startswith("Biased arrivals"))
    assert "Use AFA-CS" in warning
    assert f"6 sigma_G^2 = {6 * square:.3g}" in warning
    assert f"sigma_G)^2 = {found.balance.skew**2 * square:.3g};" in warning
    assert 0.6 < found.balance.skew < 1  # 0.4 + 0.05 + 3 * 0.15 = 0.9 in the long run
    remembered = report(AfaCs(2, 20.0, population=WORKERS), probabilities=BIASED)
    assert theorems(remembered) == [4]
    assert not any("Biased" in w for w in remembered.warnings)


def test_biased_arrivals_without_heterogeneity_are_not_warned_of():
    found = report(AfaCd(2), probabilities=BIASED, known=KnownNumbers(sigma_global=0.0))
    assert not any("Biased" in w for w in found.warnings)


def test_silent_workers_leave_afa_cs_without_a_bound():
    found = report(AfaCs(2, population=WORKERS), probabilities=(0.5, 0.5, 0, 0, 0))
    assert found.verdicts[0].bound.total == float("inf")
    assert any("3 workers never reported" in w for w in found.warnings)
    assert not any("too large" in w for w in found.warnings)  # no rate would do
    json.dumps(as_dict(found), allow_nan=False)


def test_fedavg_at_constant_steps_is_afa_cd():
    found = report(FedAvg(2, server_lr=4.0))
    assert found.rates.server_lr == 12  # K = 3
    assert theorems(found) == [2, 3]
    with pytest.raises(ConfigError, match="FedAvg"):
        report(FedAvg(2), steps=UniformSteps(1, 4))
    with pytest.raises(ConfigError, match="FedAvg"):
        report(FedAvg(2, by_samples=True))
    with pytest.raises(ConfigError, match="used FedBuff"):
        report(FedBuff(2))


def test_what_the_theorems_do_not_cover_is_warned_of():
    work = LocalWork(rule=Prox(0.1), lr=0.001, batch=1)
    found = report(Clip(AfaCd(2), 1.0), work=work)
    assert any("Clip, Prox" in w for w in found.warnings)
    mixed = [LocalWork(lr=lr, batch=1) for lr in (0.001, 0.002, 0.001, 0.001, 0.001)]
    found = report(AfaCd(2), work=mixed)
    assert found.rates.local_lr == 0.002
    assert any("rates differ" in w for w in found.warnings)
    assert not any("cover" in w for w in found.warnings)
    forgetful = AfaCs(2, population=WORKERS, expire_after=9)
    found = report(forgetful)
    assert any("rows that are forgotten, which" in w for w in found.warnings)
    assert not any("cover" in w for w in report(AfaCs(2, population=WORKERS)).warnings)


def test_diurnal_workers_are_not_equally_likely():
    # Even in the run, but 0, 1 and 2 in the first 25 updates of every fifty and 2, 3, 4 then.
    worker = np.concatenate([np.array([0, 1] * 10 + [2] * 5), np.array([3, 4] * 10 + [2] * 5)] * 4)
    run = experiment(AfaCd(1, server_lr=20.0))
    base = np.arange(len(worker), dtype=np.int32)
    columns = worker.astype(np.int32), running_numbers(worker), base, np.ones_like(base)
    found = judge_experiment(
        replace(run, timetable=Timetable(WORKERS, 1, *columns)), [run.task.init()], repeats=2
    )
    assert theorems(found) == [2]
    assert any("changes with time" in w and "Use AFA-CS" in w for w in found.warnings)
    assert not any("Biased" in w for w in found.warnings)


def test_what_a_valid_bound_leaves_out_is_warned_of():
    remembered = report(AfaCs(2, 0.5, population=WORKERS))
    assert remembered.verdicts[0].holds
    bound = remembered.verdicts[0].bound
    assert bound.corrected > bound.total
    warning = next(w for w in remembered.warnings if "Theorem 4 leaves out" in w)
    assert f"used again: its corrected bound is {bound.corrected:.3g}, not {bound.total:.3g}" in (
        warning
    )
    void = report(AfaCd(2), known=KnownNumbers(local_lr=0.5))
    assert not any("leaves out" in w for w in void.warnings)


def test_delay_is_warned_of_once_it_outweighs_the_speed_up():
    # tau^2/T against 1/sqrt(m K T) = 1/sqrt(300) at K = 3: tau = 1 and T = 100 weigh less.
    for most, T, warned in ((1, 100, False), (3, 100, True)):
        table = Sampler(WORKERS, 1, ConstantSteps(3), max_staleness=most).timetable(0, T)
        run = replace(experiment(AfaCd(1)), timetable=table)
        found = judge_experiment(run, [run.task.init()], repeats=2)
        assert found.arrivals.staleness == most
        assert any(w.startswith("The delay term is larger") for w in found.warnings) is warned


def test_the_noise_is_that_of_the_smallest_batch():
    works = [LocalWork(lr=0.001, batch=batch) for batch in (100, 1, 100, 100, 100)]
    assert report(AfaCd(2), work=works).problem.sigma_local == pytest.approx(0.5, rel=0.6)


def test_what_is_known_is_not_estimated():
    known = {"smoothness": 9.0, "sigma_local": 1.0, "sigma_global": 2.0, "gap": 3.0}
    found = report(AfaCd(2), known=KnownNumbers(**known, local_lr=0.5))
    assert as_dict(found.problem) == known
    assert found.rates.local_lr == 0.5
    assert found.squared_gradients == ()
    assert any("too large for Theorem 2 and Theorem 3" in w for w in found.warnings)


def test_judge_calculates_without_a_run_and_refuses_participation_with_one(tmp_path):
    known = KnownNumbers(local_lr=0.5, m=3)
    assert judge(known) == calculate(known)
    with pytest.raises(ConfigError, match=r"own timetable: leave out m, or leave out the run"):
        judge(known, run=tmp_path)


def test_theorem_4_begins_when_every_worker_has_reported():
    # x^2 and (x - 4)^2 from 4; worker 1 is silent for two rounds and counts as zero:
    # 4 - 8/4/2 = 3, 3 - 6/4/2 = 2.25, where f is (2.25^2 + 1.75^2) / 2.
    functions = Quadratics(np.full((2, 1), 2.0), np.array([[0.0], [4.0]]))
    worker, base = np.array([0, 0, 1, 0], np.int32), np.arange(4, dtype=np.int32)
    table = Timetable(2, 1, worker, running_numbers(worker), base, np.ones(4, np.int32))
    run = Experiment(
        QuadraticTask(functions, np.array([4.0])),
        AfaCs(1, server_lr=1.0, population=2),
        table,
        LocalWork(lr=0.25, batch=1),
    )
    found = judge_experiment(run, [run.task.init()], repeats=2)
    assert (found.memory.first, found.memory.rounds) == (2, 2)
    assert found.problem.gap == pytest.approx(4.0625)
    assert any("round 3" in w and "that of version 2" in w for w in found.warnings)
    there = judge_experiment(run, [run.task.init()], repeats=2, loss=lambda x: float(x[0]))
    assert there.problem.gap == pytest.approx(2.25)
    at_once = replace(run, rule=AfaCd(1, server_lr=1.0))
    assert judge_experiment(at_once, [run.task.init()], repeats=2).problem.gap == 8  # f(4)


def test_a_recorded_run(tmp_path):
    pytest.importorskip("torch")
    settings = Settings(rounds=12, max_staleness=2, labels_per_worker=2, batch=8)
    simulate(settings, out=tmp_path / "run")
    found = judge(run=tmp_path / "run", points=2, repeats=2)
    assert found.rule == "afa-cd"
    assert (found.arrivals.workers, found.arrivals.m, found.arrivals.rounds) == (10, 5, 12)
    assert 1 <= found.arrivals.staleness <= 2
    assert found.problem.gap == pytest.approx(np.log(10), rel=0.01)  # ten classes, untrained
    assert found.squared_gradients[1] < found.squared_gradients[0]
    assert found.local_steps.counts == {5: 60}
    with pytest.raises(ConfigError, match="points >= 1 models, got 0"):
        judge(run=tmp_path / "run", points=0)


def test_a_run_from_a_gpu_is_judged_on_the_cpu(tmp_path):
    pytest.importorskip("torch")
    settings = Settings(rounds=3, batch=8)
    simulate(settings, out=tmp_path)
    here = judge(run=tmp_path, points=1, repeats=2)
    path = tmp_path / "settings.json"
    there = {"device": "cuda:1", "precision": "bf16", "graphs": True, "backend": "ray"}
    record = json.loads(path.read_text())
    record["compute"] |= there
    record["fingerprint"] = build(settings).fingerprint(Compute(**record["compute"]))
    path.write_text(json.dumps(record))
    assert judge(run=tmp_path, points=1, repeats=2) == here


def test_a_run_is_known_wherever_it_was_computed():
    torch = pytest.importorskip("torch")
    from anarchic.train.torch_task import TorchTask

    settings = Settings(rounds=3)
    run = build(settings)
    data, parts = partition(settings)
    task = TorchTask(make("logistic", data, seed=0), data, parts)
    task.device, task.precision = torch.device("cuda:1"), "tf32"  # as one that was made there
    there = replace(run, task=task, backend=Loop())
    known = Compute(device="cuda:1", precision="tf32", backend="loop")
    assert run.fingerprint(known) == there.fingerprint() != run.fingerprint()


def test_changed_data_are_refused(tmp_path):
    path, out, rng = tmp_path / "p.csv", tmp_path / "run", np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)

    def write(labels):
        lines = [f"{a:.3f},{b:.3f},{label}" for (a, b), label in zip(x, labels, strict=True)]
        path.write_text("\n".join(["a,b,ill", *lines]))

    write(y)
    options = {"path": str(path), "target": "ill"}
    simulate(Settings(data="csv", data_options=options, rounds=3, batch=8), out=out)
    rows = measure(experiment_of(RunDirectory(out))[1], every=1)
    write(rng.permutation(y))
    with pytest.raises(RunError, match="was trained on other data than 'csv' holds now"):
        judge(run=out, points=1, repeats=2)
    write(y)
    assert measure(experiment_of(RunDirectory(out))[1], every=1) == rows


def test_a_run_with_another_rule_than_its_settings_name_is_refused(tmp_path):
    own = replace(build(Settings(rounds=3)), rule=AfaCd(5, 0.5))
    simulate(own, out=tmp_path)
    with pytest.raises(RunError, match="another model or rule"):
        judge(run=tmp_path, points=1, repeats=2)


def test_a_run_whose_rounds_are_larger_than_its_workers_has_no_theorem_3():
    found = report(AfaCd(WORKERS + 1))
    assert theorems(found) == [2]
    assert "Theorem 3 is left out" in found.warnings[0]


REFUSING = Settings(
    rounds=40, workers=12, m=3, participation="exponential", refuse_staleness=1, slow_share=0.3
)


@pytest.mark.parametrize("saved", [True, False], ids=["saved", "of an earlier version"])
def test_the_bytes_of_a_recorded_run_count_refused_updates(saved, tmp_path):
    simulate(REFUSING, out=tmp_path)
    record = RunDirectory(tmp_path)
    if not saved:
        record.write_timetable(replace(record.timetable(), wasted=None))
    experiment = experiment_of(record)[1]
    last = measure(experiment, every=20)[-1]
    refused = next(row["refused"] for row in record.metrics() if row["round"] == 20)
    model = build(REFUSING).task.init().nbytes
    assert refused > 0
    assert last.bytes == (20 * 3 + refused) * 2 * model


def test_an_unfinished_run(tmp_path):
    pytest.importorskip("torch")
    simulate(Settings(rounds=12, batch=8), out=tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    record = RunDirectory(tmp_path / "run")
    record.start_metrics(record.metrics()[:5])
    found = judge(run=tmp_path / "run", repeats=2)
    assert found.arrivals.rounds == int(record.metrics()[-1]["round"]) < 12
    assert "not finished" in found.warnings[0]
    record.start_metrics(record.metrics()[:1])
    with pytest.raises(RunError, match="not finished a round"):
        judge(run=tmp_path / "run")


def test_the_model_of_a_version_is_that_of_the_run():
    # x^2 from 8 by steps of 1/4: half of it is left each time.
    task = QuadraticTask(Quadratics(np.full((1, 1), 2.0), np.zeros((1, 1))), np.array([8.0]))
    table = Sampler(1, 1, ConstantSteps(1)).timetable(0, rounds=4)
    run = Experiment(task, AfaCd(1, server_lr=1.0), table, LocalWork(lr=0.25, batch=1))
    assert [model_at(run, version)[0] for version in range(5)] == [8, 4, 2, 1, 0.5]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_f_is_the_mean_over_workers_not_over_samples_nor_of_test_data(dtype):
    torch = pytest.importorskip("torch")
    from anarchic.train.torch_task import TorchTask

    inputs = np.zeros((3, 2), np.float32)
    test = inputs[:1], np.array([0])
    data = Dataset("three", inputs, np.array([0, 0, 1]), *test, classes=2)
    parts = [np.array([0, 1]), np.array([2])]
    task = TorchTask(torch.nn.Linear(2, 2), data, parts, dtype=dtype)
    odds = task.layout.join({"weight": np.zeros((2, 2)), "bias": np.array([log(3), 0])})
    # Class 0 has probability 3/4: -ln(3/4) for the first worker, ln 4 for the second.
    expected = (log(4 / 3) + log(4)) / 2
    assert training_loss(task, data, parts, odds) == pytest.approx(expected, rel=1e-6)
    assert task.evaluate(odds)["loss"] == pytest.approx(log(4 / 3), rel=1e-6)


def test_the_run_in_a_store_is_judged_with_its_arrivals_and_rates(tmp_path):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=2, server_lr=0.5)
        train(store, versions=20)
    found = judge(KnownNumbers(smoothness=3.0), run=tmp_path / "run.db")
    assert isinstance(found, Report)
    assert (found.rates.server_lr, found.rates.local_lr) == (0.5, 0.1)
    arrivals = found.arrivals
    assert (arrivals.workers, arrivals.m, arrivals.rounds, arrivals.staleness) == (2, 2, 20, 0)
    assert (found.problem.smoothness, found.problem.gap) == (3.0, 2.0)  # the first loss evaluated
    assert "sigma_local, sigma_global" in found.warnings[0]
    assert "Guard" in found.warnings[1]
