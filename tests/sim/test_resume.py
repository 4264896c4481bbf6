"""Runs that go on further than they were first asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anarchic import AfaCd, Experiment, LocalWork, Settings, build, simulate
from anarchic.data import random_quadratics
from anarchic.errors import RunError
from anarchic.participation import Sampler, UniformSteps, timetable
from anarchic.sim.record import RunDirectory
from anarchic.train.quadratic import QuadraticTask

pytest.importorskip("torch")
LATE = Settings(rounds=30, max_staleness=4, dynamic_steps=True, labels_per_worker=2, batch=16)
CLOCK = Settings(rounds=30, participation="exponential", slow_share=0.3, m=3, batch=16)


class Heard:
    """The rounds that a watcher was told; can end the run."""

    def __init__(self, end=None, error=KeyboardInterrupt):
        self.rounds, self.end, self.error = [], end, error

    def __call__(self, progress):
        self.rounds.append(progress.round)
        if progress.round == self.end:
            raise self.error


def assert_same(path, further, whole, settings):
    """Two runs and their directories are the same but for times and the end first asked for."""
    assert further.params.tobytes() == whole.params.tobytes()
    rows = [
        [{k: v for k, v in row.items() if k != "train_seconds"} for row in run.metrics]
        for run in (further, whole)
    ]
    assert rows[0] == rows[1]
    record = RunDirectory(path)
    assert record.timetable() == build(settings).timetable
    assert record.metrics() == further.metrics
    assert record.summary()["rounds"] == settings.rounds
    assert Settings.from_record(record.settings()) == settings


CASES = {
    "fresh": (replace(LATE, max_staleness=0), 31),  # from the very end
    "late": (LATE, 28),
    "scaffold": (replace(LATE, local_rule="scaffold"), 28),
    "afa-cs": (replace(LATE, rule="afa-cs"), 28),
    "mlp": pytest.param(replace(LATE, model="mlp"), 28, marks=pytest.mark.slow),
    "slow workers": (CLOCK, 26),
    "synchronous": (replace(CLOCK, rule="fedavg"), 31),
    "one by one": (replace(CLOCK, rule="fedasync", m=None), 1),  # keeps as many versions as needed
}


@pytest.mark.parametrize(("settings", "first"), CASES.values(), ids=CASES.keys())
def test_a_finished_run_goes_on_to_the_bytes_of_a_longer_one(tmp_path, settings, first):
    longer, heard = replace(settings, rounds=70), Heard()
    simulate(settings, out=tmp_path / "run", checkpoint_every=10)
    further = simulate(longer, out=tmp_path / "run", resume=True, watch=heard)
    assert heard.rounds == list(range(first, 71))
    longer = replace(longer, eval_every=1)  # as it was first: 30 rounds have it at every one
    assert_same(tmp_path / "run", further, simulate(longer), longer)


def test_a_run_cut_off_goes_on_further_and_further(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        simulate(LATE, out=tmp_path / "run", watch=Heard(17))
    heard = Heard(41, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        simulate(replace(LATE, rounds=50), out=tmp_path / "run", resume=True, watch=heard)
    assert heard.rounds[0] == 18
    longer, heard = replace(LATE, rounds=120, eval_every=2), Heard()
    further = simulate(longer, out=tmp_path / "run", resume=True, watch=heard)
    assert heard.rounds[0] == 18  # that of the first of the three
    assert simulate(out=tmp_path / "run", resume=True).summary == further.summary
    assert_same(tmp_path / "run", further, simulate(longer), longer)


def test_a_checkpoint_too_close_to_the_end_is_not_gone_on_from(tmp_path):
    """The longer run would have computed other updates together."""
    with pytest.raises(KeyboardInterrupt):
        simulate(LATE, out=tmp_path / "run", watch=Heard(29))
    longer, heard = replace(LATE, rounds=50, eval_every=1), Heard()
    further = simulate(longer, out=tmp_path / "run", resume=True, watch=heard)
    assert heard.rounds[0] == 1
    assert_same(tmp_path / "run", further, simulate(longer), longer)


def test_a_short_run_without_a_checkpoint_begins_again(tmp_path):
    simulate(LATE, out=tmp_path / "run")
    assert not RunDirectory(tmp_path / "run").checkpoint.exists()
    further = simulate(replace(LATE, rounds=31), out=tmp_path / "run", resume=True)
    assert further.params.tobytes() == simulate(replace(LATE, rounds=31)).params.tobytes()


def test_a_run_goes_on_to_a_later_time(tmp_path):
    settings = replace(CLOCK, rounds=Settings.rounds, until_s=20.0)
    short = simulate(settings, out=tmp_path / "run", checkpoint_every=5)
    longer, heard = replace(settings, until_s=60.0), Heard()
    further = simulate(longer, out=tmp_path / "run", resume=True, watch=heard)
    assert short.summary["stopped_at"] == further.summary["stopped_at"] == "until_s"
    assert "stopped" not in repr(short)
    assert simulate(replace(CLOCK, rounds=4, until_s=20.0)).summary["stopped_at"] == "rounds"
    assert short.summary["virtual_s"] <= 20.0 < further.summary["virtual_s"] <= 60.0
    assert 1 < heard.rounds[0] <= short.summary["rounds"]
    assert further.params.tobytes() == simulate(longer).params.tobytes()


def test_the_rows_of_the_last_ten_rounds_go_where_the_end_goes(tmp_path):
    settings = replace(LATE, last10=True, eval_every=8)
    simulate(settings, out=tmp_path / "run", checkpoint_every=10)
    longer = replace(settings, rounds=44)
    further = simulate(longer, out=tmp_path / "run", resume=True)
    assert [row["round"] for row in further.metrics] == [0, 8, 16, 24, 32, *range(35, 45)]
    assert_same(tmp_path / "run", further, simulate(longer), longer)


def experiment(rounds):
    table = Sampler(6, 2, UniformSteps(1, 4), max_staleness=3).timetable(0, rounds)
    task = QuadraticTask(random_quadratics(6, 3), start=np.ones(3))
    return Experiment(task, AfaCd(2), table, LocalWork(lr=0.01))


def test_an_experiment_goes_on_with_a_longer_timetable(tmp_path):
    heard = Heard()
    simulate(experiment(30), out=tmp_path / "run", checkpoint_every=10)
    further = simulate(experiment(60), out=tmp_path / "run", resume=True, watch=heard)
    assert heard.rounds[0] == 23
    assert further.params.tobytes() == simulate(experiment(60)).params.tobytes()


def test_a_longer_run_of_other_settings_is_refused(tmp_path):
    simulate(LATE, out=tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    for change, problem in (
        ({"rounds": 60, "local_lr": 0.2}, "another run: local_lr is 0.1 there and 0.2 here"),
        ({"rounds": 60, "max_staleness": 3}, "max_staleness is 4 there and 3 here; rounds"),
        ({"rounds": 29}, "rounds is 30 there and 29 here"),
    ):
        with pytest.raises(RunError, match=problem):
            simulate(replace(LATE, **change), out=tmp_path / "run", resume=True)
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.parametrize("write", ["_write", "write_timetable"])
def test_a_run_cut_off_while_it_is_made_longer_is_one_or_the_other(tmp_path, monkeypatch, write):
    simulate(LATE, out=tmp_path / "run", checkpoint_every=10)

    def fail(*_):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, write, fail)
        with pytest.raises(ZeroDivisionError):
            simulate(replace(LATE, rounds=50), out=tmp_path / "run", resume=True)
    heard, rounds = Heard(), {"_write": 30, "write_timetable": 50}[write]
    further = simulate(out=tmp_path / "run", resume=True, watch=heard)
    assert (heard.rounds[0], heard.rounds[-1]) == (28, rounds)
    whole = simulate(replace(LATE, rounds=rounds))
    assert further.params.tobytes() == whole.params.tobytes()
    assert RunDirectory(tmp_path / "run").timetable().rounds == rounds


def test_a_run_whose_timetable_was_drawn_otherwise_is_resumed_with_it(tmp_path, monkeypatch):
    """As earlier versions did: all rounds at once."""
    with monkeypatch.context() as patch:
        patch.setattr(timetable, "FIRST_ROUNDS", 30)
        whole = simulate(LATE)
        for name in ("cut", "finished"):
            with pytest.raises(KeyboardInterrupt):
                simulate(LATE, out=tmp_path / name, watch=Heard(12))
        simulate(out=tmp_path / "finished", resume=True)
    assert build(LATE).timetable != RunDirectory(tmp_path / "cut").timetable()
    assert simulate(out=tmp_path / "finished", resume=True).accuracy == whole.accuracy
    heard = Heard()
    with pytest.raises(RunError, match=r"drawn by an earlier version .* with rounds=30, or begin"):
        simulate(replace(LATE, rounds=50), out=tmp_path / "cut", resume=True)
    with pytest.raises(RunError, match="max_staleness is 4 there and 2 here"):
        simulate(replace(LATE, max_staleness=2), out=tmp_path / "cut", resume=True)
    resumed = simulate(LATE, out=tmp_path / "cut", resume=True, watch=heard)
    assert heard.rounds[0] == 13
    assert resumed.params.tobytes() == whole.params.tobytes()
