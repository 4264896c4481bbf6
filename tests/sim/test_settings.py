from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from math import inf

import numpy as np
import pytest

from anarchic import (
    Adam,
    AfaCd,
    AfaCs,
    Clip,
    ClipNorm,
    Compute,
    Prox,
    Settings,
    SharedVectors,
    StalenessDiscount,
    simulate,
)
from anarchic.core import registry
from anarchic.core.steps import AdamStep
from anarchic.errors import ConfigError, RunError
from anarchic.participation import Visits, from_visits
from anarchic.participation.idle import IDLE_TIMES
from anarchic.sim.settings import WORKERS, build, make_table, partition

pytest.importorskip("torch")


def test_names_become_parts():
    experiment = build(
        Settings(rule="afa-cs", m=4, server_lr=2.0, server_opt="adam", local_rule="prox", mu=0.3)
    )
    assert experiment.rule == AfaCs(4, 2.0, population=10, step=AdamStep())
    assert experiment.work.rule == Prox(0.3)


def test_wrappers_go_around_the_rule():
    rule = build(Settings(staleness_power=0.5, clip=2.0, local_rule="scaffold")).rule
    assert rule == SharedVectors(Clip(StalenessDiscount(AfaCd(5), 0.5), 2.0), ("control",), 10)


@pytest.mark.parametrize("rule", registry.KINDS["rules"].built_in)
def test_every_rule_can_be_built_by_its_name(rule):
    assert build(Settings(rule=rule, rounds=2)).rule.m >= 1


def test_rule_options_reach_the_rule():
    rule = build(Settings(rule="fedasync", rule_options={"mixing": 0.9, "history": 7})).rule
    assert (rule.mixing, rule.history) == (0.9, 7)


def test_server_options_reach_the_step():
    rule = build(Settings(server_opt="adam", server_options={"epsilon": 1e-5, "beta1": 0.5})).rule
    assert rule.step == AdamStep(beta1=0.5, epsilon=1e-5)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rule": "fedsgd"}, "no rule 'fedsgd'; there are afa-cd, afa-cs"),
        ({"local_rule": "lion"}, "no local rule 'lion'"),
        ({"server_opt": "lion"}, "no server optimiser 'lion'"),
        ({"participation": "often"}, "no participation 'often'"),
        ({"data": "imagenet"}, "no data set 'imagenet'"),
        ({"model": "gpt"}, "no model 'gpt'"),
        ({"rounds": 0}, "at least one round"),
        ({"seed": -1}, "must not be negative"),
        ({"m": 11}, "11"),
        ({"labels_per_worker": 3, "workers": 4, "m": 2}, "equally often"),
        ({"labels_per_worker": 2, "dirichlet": 0.1}, "not by both"),
        ({"rule": "fedasync", "m": 5}, "FedAsync has no setting 'm'; it has mixing, power"),
        ({"rule": "fedasync", "server_lr": 1.0}, "no setting 'server_lr'"),
        ({"mu": 0.1}, "Sgd has no setting 'mu'"),
        ({"rule_options": {"beta": 1}}, "AfaCd has no setting 'beta'"),
        ({"rule_options": "beta=1"}, "rule_options must be a mapping of names to values"),
        ({"data_options": {"seed": 1}}, "digits has no option 'seed'. Its options: none"),
        ({"data": "synthetic", "data_options": {"data_dir": "x"}}, "has no option 'data_dir'"),
        ({"data": "synthetic", "data_options": {"beta": "1"}}, "beta of synthetic must be a num"),
        ({"data": "synthetic", "data_options": {"beta": -1.0}}, "beta >= 0, got .*beta=-1.0"),
        (
            {"data": "synthetic", "data_options": {"workers": 9}, "workers": 8},
            "partitioned by role to 9 workers, got workers=8: leave it out",
        ),
        ({"server_options": {"beta": 1}}, "SgdStep has no setting 'beta'; it has none"),
        ({"rule": "fedavg", "max_staleness": 4}, "fedavg is synchronous"),
        ({"local_lr": 0.0}, "positive learning rate"),
        ({"batch": 0}, "batch of at least 1"),
        ({"arrival_probs": (0.5, 0.5)}, "10"),
        ({"dtype": "float16"}, "no dtype 'float16'.*here are float32, float64"),
        ({"target_accuracy": 0.0}, "above 0 and at most 1, got 0.0"),
        ({"target_accuracy": 90}, "above 0 and at most 1, got 90"),
        ({"eval_every": 0}, "eval_every must be at least 1"),
        ({"data": "synthetic", "workers": 0}, "workers"),
        ({"rule": "afacd"}, r"no rule 'afacd'\. Did you mean 'afa-cd'\? There are afa-cd, afa-cs"),
        ({"workers": "10"}, "workers must be a whole number or None, got '10'"),
        ({"rounds": 1e3}, r"rounds must be a whole number, got 1000\.0"),
        ({"seed": None}, "seed must be a whole number, got None"),
        ({"local_lr": "0.1"}, "local_lr must be a number, got '0.1'"),
        ({"dynamic_steps": "no"}, "dynamic_steps must be True or False, got 'no'"),
        ({"rule": None}, "rule must be a text, got None"),
        (
            {"participation": "exponential", "slow_share": 2},
            "slow_share is a probability, 0 to 1, got 2",
        ),
    ],
)
def test_bad_settings_are_refused_with_a_sentence(settings, says):
    with pytest.raises(ConfigError, match=says):
        build(Settings(**settings))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"idle_s": 2.0}, "'sampler' has no use for idle_s=2.0: .* exponential or lognormal"),
        ({"step_s": 0.1}, "step_s=0.1"),
        ({"time_distribution": "constant"}, "time_distribution='constant'"),
        ({"slow_share": 0.3}, "slow_share=0.3"),
        ({"slow_factor": 3.0}, "slow_factor=3.0"),
        ({"lost_share": 0.1}, "lost_share=0.1"),
        ({"timeout_s": 9.0}, "timeout_s=9.0"),
        ({"availability": "trace.csv"}, "availability='trace.csv'"),
        (
            {"participation": "diurnal", "max_staleness": 4},
            "'diurnal' has no use for max_staleness",
        ),
        ({"participation": "diurnal", "replace": True}, "replace=True: .* participation sampler"),
        ({"participation": "diurnal", "arrival_probs": (1.0,)}, "arrival_probs"),
        ({"rule": "fedavg", "participation": "diurnal", "availability": "a.csv"}, "synchronous"),
        (
            {"participation": "exponential", "slow_factor": 3.0},
            "without slow workers has no use for slow_factor=3.0: .* slow_share above 0",
        ),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        Settings(**settings)


SLOW = {"participation": "exponential", "slow_share": 0.5}
LOSSY = {"rule": "fedavg", "participation": "exponential", "lost_share": 0.3, "timeout_s": 9.0}


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({}, {"max_staleness": 4}),
        ({}, {"dynamic_steps": True}),
        ({}, {"replace": True}),
        ({}, {"arrival_probs": (0.19, 0.19, *[0.1] * 6, 0.01, 0.01)}),
        (SLOW, {"participation": "lognormal"}),
        (SLOW, {"participation": "diurnal"}),
        (SLOW, {"idle_s": 2.0}),
        (SLOW, {"step_s": 0.1}),
        (SLOW, {"time_distribution": "constant"}),
        (SLOW, {"slow_share": 0.1}),
        (SLOW, {"slow_factor": 3.0}),
        (SLOW, {"lost_share": 0.3}),
        (SLOW, {"availability": "trace.csv"}),
        (LOSSY, {"lost_share": 0.1}),
        (LOSSY, {"timeout_s": 5.0}),
    ],
    ids=str,
)
def test_every_setting_of_participation_makes_another_timetable(
    settings, change, tmp_path, monkeypatch
):
    """Else it could be taken and do nothing."""
    windows = "".join(f"{worker},{worker},99\n" for worker in range(10))
    (tmp_path / "trace.csv").write_text(f"worker,from_s,until_s\n{windows}")
    monkeypatch.chdir(tmp_path)
    plain = Settings(rounds=10, **settings)
    assert make_table(plain, 10) == make_table(plain, 10)
    assert make_table(replace(plain, **change), 10) != make_table(plain, 10)


def test_epochs_take_the_place_of_local_steps():
    experiment = build(Settings(rounds=3, epochs=2, batch=32, dirichlet=0.5))
    samples, table = experiment.task.samples, experiment.timetable
    assert len(set(samples.tolist())) > 1
    assert table.local_steps.tolist() == (2 * -(-samples // 32))[table.worker].tolist()
    assert experiment.work.shuffle
    assert not build(Settings(rounds=3)).work.shuffle
    with pytest.raises(ConfigError, match="epochs=2 or local steps, not both"):
        Settings(epochs=2, local_steps=3)
    with pytest.raises(ConfigError, match="epochs=0"):
        build(Settings(epochs=0))


def test_local_rules_can_be_wrapped():
    settings = Settings(local_rule="clipnorm+adam", local_options={"max_norm": 0.5}, local_lr=0.01)
    assert build(settings).work.rule == ClipNorm(0.5, Adam())
    with pytest.raises(ConfigError, match="no local rule 'clap'"):
        Settings(local_rule="clap+adam")


def test_compute_choices_reach_the_task(monkeypatch):
    """Also where there is none."""
    learnt = {
        "dtype": "float32",
        "augment": False,
        "buffers": "local",
        "metrics": {},
        "per_worker": True,
    }
    computed = {"device": "cuda:1", "precision": "bf16", "graphs": False}
    met = {}

    class Met(Exception):
        pass

    def task(module, data, parts, **options):
        met.update(options)
        raise Met

    monkeypatch.setattr("anarchic.train.torch_task.TorchTask", task)
    with pytest.raises(Met):
        build(Settings(rounds=1, **learnt), Compute(**computed))
    assert met == learnt | computed


def test_only_the_rule_need_change_in_a_comparison():
    clocked = {"participation": "exponential", "idle_s": 2.0, "timeout_s": 9.0, "lost_share": 0.1}
    assert Settings(rule="fedavg", **clocked).idle_s == Settings(**clocked).idle_s


def test_settings_come_back_from_a_record():
    probabilities = {"workers": 2, "m": 1, "arrival_probs": (0.4, 0.6)}
    settings = Settings(data="synthetic", data_options={"beta": 0.5}, **probabilities)
    record = json.loads(json.dumps({**asdict(settings), "fingerprint": "x"}))
    assert Settings.from_record(record) == settings


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"rounds": 3, "quantum": True, "fingerprint": "x"}, r"this version \(quantum\)"),
        ({"fingerprint": "x"}, "it has none"),
    ],
)
def test_a_record_of_something_else_is_refused(record, says):
    with pytest.raises(RunError, match=says):
        Settings.from_record(record)


def test_the_partition_is_that_of_the_run():
    settings = Settings(workers=5, m=2, labels_per_worker=4, seed=2)
    data, parts = partition(settings)
    assert (data.name, len(parts)) == ("digits", 5)
    assert all(len(set(data.y_train[part])) == 4 for part in parts)
    assert [len(part) for part in parts] == build(settings).task.samples.tolist()


def test_without_a_number_there_are_ten_workers_or_one_per_role():
    assert len(partition(Settings())[1]) == WORKERS == 10
    data, parts = partition(Settings(data="synthetic", workers=7))
    assert len(data.roles) == len(parts) == 7


def test_roles_are_workers_unless_the_data_is_partitioned_otherwise():
    experiment = build(Settings(data="synthetic", workers=12, rounds=2))
    assert len(experiment.task.samples) == 12
    pooled = build(Settings(data="synthetic", workers=6, dirichlet=1.0, rounds=2))
    assert len(pooled.task.samples) == 6


def test_options_reach_the_data():
    plain, _ = partition(Settings(data="synthetic", workers=4))
    data, parts = partition(Settings(data="synthetic", data_options={"workers": 4, "beta": 0.0}))
    assert (data.name, len(parts)) == ("synthetic(1, 0)", 4)
    assert not np.array_equal(data.x_train, plain.x_train)
    # The data of all roles may be partitioned to another number of workers.
    pooled = Settings(data="synthetic", data_options={"workers": 4}, workers=3, dirichlet=1.0)
    assert len(partition(pooled)[1]) == 3


def test_a_record_from_before_there_were_data_options_has_none():
    record = {**asdict(Settings()), "fingerprint": "x"}
    assert record.pop("data_options") == {}
    assert Settings.from_record(record) == Settings()


def test_parts_have_independent_seeds():
    one, two = build(Settings(local_lr=0.1, model="mlp")), build(Settings(rounds=20, model="mlp"))
    assert np.array_equal(one.task.init(), two.task.init())
    assert np.array_equal(one.task.samples, two.task.samples)


def test_fedasync_remembers_every_version_that_an_update_starts_from():
    # With 200 workers updates are far later than the hundred versions of FedAsync's default.
    late = Settings(rule="fedasync", participation="exponential", workers=200, rounds=400)
    experiment = build(late)
    assert experiment.timetable.staleness.max() > 100
    assert simulate(experiment).summary["rounds"] == 400


def test_a_low_precision_is_for_float32():
    with pytest.raises(ConfigError, match="precision='bf16' is for dtype float32, got 'float64'"):
        build(Settings(dtype="float64"), Compute(device="cuda", precision="bf16"))


@pytest.mark.parametrize("participation", ["exponential", "lognormal", "diurnal"])
def test_idle_s_is_the_mean_idle_time_while_awake(participation):
    idle = IDLE_TIMES[participation](3.0)
    awake = 8 / 24 if participation == "diurnal" else 1.0
    assert idle.mean_s * awake == pytest.approx(3.0)


@pytest.mark.parametrize("participation", ["exponential", "lognormal", "diurnal"])
def test_fedavg_meets_the_same_stragglers_in_synchronous_rounds(participation):
    settings = {"participation": participation, "rounds": 20, "slow_share": 0.2}
    anarchic = build(Settings(**settings)).timetable
    synchronous = build(Settings(rule="fedavg", **settings)).timetable
    assert anarchic.staleness.max() > 0
    assert synchronous.staleness.max() == 0
    assert synchronous.version_s is not None


CLOCKED = Settings(participation="exponential", slow_share=0.2, rounds=200)


@pytest.mark.parametrize("rule", ["afa-cd", "fedavg", "fedasync"])
def test_a_run_ends_at_a_virtual_time(rule):
    rounds = make_table(replace(CLOCKED, rule=rule), 10)
    assert rounds.version_s is not None
    until_s = rounds.version_s[179] + 1e-9
    table = make_table(replace(CLOCKED, rule=rule, rounds=Settings.rounds, until_s=until_s), 10)
    assert table == rounds.cut(180)  # 150 rounds, the default, are no bound
    fewer = make_table(replace(CLOCKED, rule=rule, rounds=20, until_s=until_s), 10)
    assert fewer == rounds.cut(20)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"until_s": 5.0}, "'sampler' has no use for until_s=5.0"),
        ({"participation": "exponential", "until_s": 0.0}, "above 0 and finite, got until_s=0.0"),
        ({"participation": "exponential", "until_s": inf}, "above 0 and finite, got until_s=inf"),
    ],
)
def test_an_end_without_a_clock_or_without_time_is_refused(settings, problem):
    with pytest.raises(ConfigError, match=problem):
        Settings(**settings)


def test_a_time_before_the_first_round_is_refused():
    with pytest.raises(ConfigError, match=r"No round ends before until_s=0\.001: end later"):
        make_table(replace(CLOCKED, until_s=0.001), 10)


@dataclass
class Metronome:
    """A process of its own kind: one worker per second, in turn."""

    workers: int
    m: int

    def timetable(self, rng, rounds):
        worker = np.arange(rounds * self.m, dtype=np.int32) % self.workers
        push_s = np.arange(1.0, rounds * self.m + 1)
        steps = np.ones(rounds * self.m, np.int32)
        return from_visits(Visits(worker, push_s - 1, push_s, steps), self.m, self.workers)


def test_a_process_that_is_asked_for_rounds_ends_at_a_time():
    own = Settings(participation=f"{__name__}:Metronome", until_s=2004.0)
    table = make_table(own, 10)
    assert (table.rounds, table.push_s[-1]) == (400, 2000.0)
    assert make_table(replace(own, rounds=7), 10) == table.cut(7)
