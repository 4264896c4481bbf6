"""Runs that share a batch are what they would be alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
from anarchic import (
    AfaCd,
    Compute,
    Experiment,
    LocalWork,
    Progress,
    Settings,
    build,
    simulate,
)
from anarchic.data import Quadratics
from anarchic.participation import ConstantSteps, Sampler
from anarchic.sim.simulate import simulate_many
from anarchic.train.quadratic import QuadraticTask

BASE = Settings(rounds=8, batch=8, workers=6, labels_per_worker=5, m=3, local_steps=3)
RUNS = {
    "plain": BASE,
    "late": replace(BASE, max_staleness=3, dynamic_steps=True, seed=1),
    "prox": replace(BASE, local_rule="prox", mu=0.5),
    "scaffold": replace(BASE, local_rule="scaffold", max_staleness=2, seed=2),
    "silos": replace(BASE, rule="afa-cs", workers=4, arrival_probs=(0.5, 0.3, 0.1, 0.1)),
    "longer": replace(BASE, rounds=11),
    "another model": replace(BASE, model="mlp", rounds=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_each_run_is_as_it_would_be_alone(model: str) -> None:
    runs: dict[str, Settings | Experiment] = {
        name: replace(run, model=model) for name, run in RUNS.items()
    }
    longer = replace(BASE, rounds=11, model=model)
    runs["other lookahead"] = build(longer, Compute(lookahead=3))
    together = simulate_many(runs)
    assert list(together) == list(runs)
    for name, settings in runs.items():
        alone = simulate(settings)
        np.testing.assert_allclose(together[name].params, alone.params, rtol=2e-5, atol=1e-6)
        assert together[name].summary["updates"] == alone.summary["updates"]
        for ours, theirs in zip(together[name].metrics, alone.metrics, strict=True):
            assert ours["round"] == theirs["round"]
            assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=0.01)
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)


def test_runs_with_other_settings_end_with_other_models() -> None:
    """The comparison above is not one of equal runs."""
    found = simulate_many(RUNS)
    finals = {name: run.params for name, run in found.items() if len(run.params) == 650}
    assert len(finals) == 6
    assert len({vector.tobytes() for vector in finals.values()}) == 6


def quadratic(noise: float, seed: int) -> Experiment:
    rng = np.random.default_rng(seed)
    functions = Quadratics(np.ones((4, 3)), rng.standard_normal((4, 3)), noise)
    table = Sampler(4, 2, ConstantSteps(2)).timetable(seed, 12)
    return Experiment(QuadraticTask(functions), AfaCd(2), table, LocalWork(lr=0.2), seed=seed)


def test_quadratics_share_batches_too() -> None:
    runs = {"a": quadratic(0.5, 1), "b": quadratic(0.5, 2), "other noise": quadratic(0.1, 3)}
    together = simulate_many(runs)
    for name, experiment in runs.items():
        np.testing.assert_array_equal(together[name].params, simulate(experiment).params)


def test_a_run_that_diverges_does_not_end_the_others() -> None:
    tame = quadratic(0.5, 1)
    table = Sampler(4, 2, ConstantSteps(2)).timetable(0, 2_000)
    wild = replace(tame, timetable=table, work=LocalWork(lr=3.0))
    found = simulate_many({"wild": wild, "tame": tame})
    assert found["wild"].summary["stopped_at"] == "diverged"
    assert found["wild"].summary["rounds"] < 2_000
    assert found["tame"].summary["stopped_at"] == "rounds"
    np.testing.assert_array_equal(found["tame"].params, simulate(tame).params)


def test_runs_stopped_by_time_go_on_from_there(tmp_path: Path) -> None:
    whole = simulate_many(RUNS)
    assert simulate_many(RUNS, out=tmp_path, stop_after_s=0.0) == {}
    assert all((tmp_path / name / "checkpoint.safetensors").exists() for name in RUNS)
    again = simulate_many(RUNS, out=tmp_path, resume=True)
    for name, run in whole.items():
        np.testing.assert_allclose(again[name].params, run.params, rtol=2e-5, atol=1e-6)
    read = simulate_many(RUNS, out=tmp_path, resume=True)
    assert all(read[name].summary == again[name].summary for name in RUNS)


class Cut(Exception):
    pass


@pytest.mark.parametrize(("error", "first"), [(Cut, 3), (KeyboardInterrupt, 4)])
def test_runs_go_on_from_their_last_checkpoint(
    tmp_path: Path, error: type[BaseException], first: int
) -> None:
    """An interrupt between rounds writes one."""

    def stop(name: str, progress: Progress) -> None:
        if progress.round == 3:
            raise error

    whole = simulate_many(RUNS)
    with pytest.raises(error):
        simulate_many(RUNS, out=tmp_path, checkpoint_every=2, watch=stop)
    heard: list[int] = []
    again = simulate_many(
        RUNS, out=tmp_path, resume=True, watch=lambda name, progress: heard.append(progress.round)
    )
    assert heard[0] == first
    for name, run in whole.items():
        np.testing.assert_allclose(again[name].params, run.params, rtol=2e-5, atol=1e-6)


def test_watchers_are_told_the_round_of_each_run() -> None:
    heard: list[tuple[str, int]] = []
    runs = {"a": replace(BASE, rounds=2), "b": replace(BASE, rounds=3)}
    simulate_many(runs, watch=lambda name, progress: heard.append((name, progress.round)))
    assert heard == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("b", 3)]
