"""What callbacks hear of a simulated run, and how they end it."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from anarchic import Settings, Stop, simulate, simulate_many
from anarchic.callbacks import Callback
from anarchic.errors import ConfigError
from anarchic.sim.record import RunDirectory

SMALL = Settings(rounds=6, batch=8, eval_every=3)


class Recording(Callback):
    def __init__(self):
        self.heard = []

    def begin(self, run):
        self.run = run
        self.heard.append(("begin", run.name, run.rounds, len(run.metrics)))

    def version(self, at):
        self.heard.append(("version", at.version, dict(at.metrics)))

    def evaluation(self, at):
        self.heard.append(("evaluation", at.version, at.metrics["accuracy"]))
        self.last = at

    def end(self, summary):
        self.heard.append(("end", summary["rounds"], summary["stopped_at"]))


def test_a_callback_hears_of_every_version_and_evaluation_in_order():
    recording = Recording()
    run = simulate(SMALL, callbacks=[recording])
    accuracies = [row["accuracy"] for row in run.metrics]
    assert recording.heard == [
        ("begin", "run", 6, 0),
        ("evaluation", 0, accuracies[0]),
        *[("version", version, {}) for version in (1, 2, 3)],
        ("evaluation", 3, accuracies[1]),
        *[("version", version, {}) for version in (4, 5, 6)],
        ("evaluation", 6, accuracies[2]),
        ("end", 6, "rounds"),
    ]
    assert recording.run.settings["batch"] == 8


def test_parameters_are_read_when_asked_for_and_are_a_copy():
    plain, recording = simulate(SMALL), Recording()
    seen = []

    class Careless(Callback):
        def version(self, at):
            seen.append(at)
            if at.version == 2:
                at.params[:] = 0  # its own

    run = simulate(SMALL, callbacks=[recording, Careless()])
    np.testing.assert_array_equal(run.params, plain.params)
    assert set(recording.last.tensors) == {"bias", "weight"}
    np.testing.assert_array_equal(recording.last.params, run.params)
    np.testing.assert_array_equal(seen[-1].params, run.params)  # also after the end
    assert not np.array_equal(seen[0].params, run.params)


@pytest.mark.parametrize("event", ["begin", "version", "evaluation"])
def test_stop_ends_with_a_finished_run(tmp_path, event):
    class Ending(Callback):
        pass

    def end(self, at):
        if getattr(at, "version", 3) == 3:
            raise Stop("that will do")

    setattr(Ending, event, end)
    recording = Recording()
    run = simulate(SMALL, out=tmp_path / "run", callbacks=[Ending(), recording])
    rounds = 0 if event == "begin" else 3
    assert run.summary["rounds"] == run.metrics[-1]["round"] == rounds
    assert (run.summary["stopped_at"], run.summary["stop_reason"]) == ("stopped", "that will do")
    assert recording.heard[-1] == ("end", rounds, "stopped")
    record = RunDirectory(tmp_path / "run")
    assert record.finished
    assert "stopped: that will do" in repr(run)
    again = simulate(SMALL, out=tmp_path / "run", resume=True)
    assert again.params.tobytes() == run.params.tobytes()


def test_a_watcher_stops_a_run_too():
    def watch(progress):
        if progress.round == 2:
            raise Stop

    run = simulate(SMALL, watch=watch)
    assert (run.summary["rounds"], run.summary["stopped_at"]) == (2, "stopped")
    assert run.metrics[-1]["round"] == 2


def test_other_exceptions_are_the_callers():
    class Broken:
        def version(self, at):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        simulate(SMALL, callbacks=[Broken()])


def test_a_single_callback_needs_no_list():
    one = Recording()
    simulate(SMALL, callbacks=one)
    assert one.run is not None
    with pytest.raises(ConfigError, match="Recording is a class"):
        simulate(SMALL, callbacks=Recording)
    with pytest.raises(ConfigError, match="got 3"):
        simulate(SMALL, callbacks=3)


def test_what_hears_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"Recording is a class: give an object, Recording\("):
        simulate(SMALL, callbacks=[Recording])
    with pytest.raises(ConfigError, match="some of begin, version, evaluation, end, got 3"):
        simulate(SMALL, callbacks=[3])


def test_each_of_many_runs_has_callbacks_of_its_own_and_stops_alone():
    made = {}

    class Short(Recording):
        def version(self, at):
            super().version(at)
            if self.run.name == "short" and at.version == 2:
                raise Stop

    def callbacks(name):
        made[name] = Short()
        return [made[name]]

    runs = simulate_many({"short": SMALL, "long": replace(SMALL, seed=1)}, callbacks=callbacks)
    assert {name: run.summary["rounds"] for name, run in runs.items()} == {"short": 2, "long": 6}
    assert made["long"].heard[-1] == ("end", 6, "rounds")


def test_a_resumed_run_tells_of_its_evaluations_so_far(tmp_path):
    class Cut(Exception):
        pass

    def cut(progress):
        if progress.round == 4:
            raise Cut

    with pytest.raises(Cut):
        simulate(SMALL, out=tmp_path / "cut", checkpoint_every=4, watch=cut)
    recording = Recording()
    simulate(out=tmp_path / "cut", resume=True, callbacks=[recording])
    assert recording.heard[0] == ("begin", "cut", 6, 2)
    assert [row["round"] for row in recording.run.metrics] == [0, 3]


def test_progress_is_lines_where_there_is_no_terminal(capsys):
    simulate(SMALL, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "run: round 0/6"
    assert lines[-1].startswith("run: round 6/6  accuracy 0.")


def test_progress_is_a_bar_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    simulate(SMALL, progress=True)
    assert "round" in capsys.readouterr().err
