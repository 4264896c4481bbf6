"""Runs whose arrivals depend on the server, from settings to the model."""

from dataclasses import replace

import numpy as np
import pytest

from anarchic import Settings, build, simulate
from anarchic.core.types import Updates
from anarchic.errors import ConfigError
from anarchic.sim.settings import make_table
from anarchic.sim.traced import table_of_visits

BASE = Settings(participation="exponential", slow_share=0.3, rounds=40, eval_every=20, m=4)
TIMED = replace(BASE, step_every_s=0.7, m=8)


def test_a_setting_that_binds_nobody_changes_nothing():
    assert make_table(replace(BASE, max_concurrent=10), 10) == make_table(BASE, 10)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_concurrent": 3},
        {"refuse_staleness": 1, "retries": 3},
        {"step_every_s": 0.5},
        {"server_picks": "free"},
        {"skip_unchanged": True},
        {"join": "0.5@5", "leave": "0.2@8"},
    ],
)
def test_each_setting_changes_who_reports_when(settings):
    table = make_table(replace(BASE, **settings), 10)
    table.check()
    assert table != make_table(BASE, 10)
    assert table.rounds == 40


def test_a_timer_steps_with_the_mean_of_what_has_come():
    """Folded by hand: the rule is told to step after the rows of each version."""
    experiment = build(TIMED)
    table, rule = experiment.timetable, experiment.rule
    assert 1 <= table.stepped.sizes.min() < table.stepped.sizes.max() <= 8
    run = simulate(experiment)
    received, updates = [], []

    class Listening(type(rule)):
        def receive_many(self, state, block: Updates):
            received.append((state.version, len(block)))
            updates.append(block.directions.copy())
            return super().receive_many(state, block)

    listening = Listening(**{name: getattr(rule, name) for name in ("m", "server_lr")})
    again = simulate(replace(experiment, rule=listening))
    assert again.params.tobytes() == run.params.tobytes()
    folded = np.zeros(table.rounds, int)
    for version, rows in received:
        folded[version] += rows
    assert folded.tolist() == table.stepped.sizes.tolist()
    means, row = experiment.task.init().astype(np.float64), 0
    rows = np.concatenate(updates)
    for size in table.stepped.sizes.tolist():
        means = means - rule.server_lr * experiment.work.lr * rows[row : row + size].mean(axis=0)
        row += size
    assert np.allclose(means, run.params, atol=1e-5)


@pytest.mark.parametrize("settings", [TIMED, replace(BASE, refuse_staleness=1, retries=2)])
def test_a_resumed_and_a_longer_run_end_in_the_same_bytes(tmp_path, settings):
    whole = simulate(settings, out=tmp_path / "whole")
    simulate(replace(settings, rounds=25), out=tmp_path / "short")
    longer = simulate(settings, out=tmp_path / "short", resume=True)
    assert longer.params.tobytes() == whole.params.tobytes()

    def stop(progress):
        if progress.round == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(settings, out=tmp_path / "cut", watch=stop, checkpoint_every=5)
    resumed = simulate(settings, out=tmp_path / "cut", resume=True)
    assert resumed.params.tobytes() == whole.params.tobytes()


def test_what_was_in_vain_is_in_the_summary():
    settings = replace(BASE, refuse_staleness=1)
    run = simulate(settings)
    wasted = run.summary["wasted"]
    assert run.metrics[-1]["refused"] == wasted["refused"]
    assert run.metrics[-1]["steps_in_vain"] == wasted["local_steps"]
    assert run.metrics[0]["refused"] == 0 < run.metrics[1]["refused"] < wasted["refused"]
    # Parameters are 650 float32: 64 pixels and a bias for each of ten digits.
    assert wasted.pop("bytes") == 2 * 2600 * wasted["refused"]
    assert wasted == make_table(settings, 10).wasted.total
    assert wasted["refused"] > 0
    assert wasted["local_steps"] == 5 * wasted["refused"]
    alone = simulate(BASE)
    assert "wasted" not in alone.summary
    assert "refused" not in alone.metrics[0]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"max_concurrent": 3}, "'sampler' has no use for max_concurrent=3"),
        ({"join": "0.5@3"}, "'sampler' has no use for join"),
        ({"participation": "exponential", "join": "half"}, "join takes SHARE@SECONDS"),
        ({"participation": "exponential", "retries": 2}, "give refuse_staleness too"),
        ({"participation": "exponential", "server_picks": "fifo"}, "server_picks"),
        (
            {"participation": "exponential", "rule": "fedavg", "server_picks": "free"},
            "fedavg is synchronous and has no use for server_picks",
        ),
        ({"participation": "exponential", "speeds": "x", "slow_share": 0.5}, "leave out speeds"),
    ],
)
def test_misuse(settings, problem):
    with pytest.raises(ConfigError, match=problem):
        Settings(**settings)


def test_visits_of_a_file_with_a_server(tmp_path):
    path = tmp_path / "log.csv"
    lines = [f"{w},{t * (w + 1)},{(t + 1) * (w + 1)},5" for w in range(4) for t in range(12)]
    path.write_text("\n".join(["worker,pull_s,push_s,local_steps", *lines]))
    settings = replace(BASE, slow_share=0.0, m=2)
    plain = table_of_visits(path, settings)
    assert len(plain) == 48
    held = table_of_visits(path, replace(settings, max_concurrent=1))
    assert len(held) == 48
    assert held.staleness.max() == 0
    assert table_of_visits(path, replace(settings, until_s=6.0)).push_s[-1] <= 6.0
    with pytest.raises(ConfigError, match="no round of m=2"):
        table_of_visits(path, replace(settings, until_s=0.1))
