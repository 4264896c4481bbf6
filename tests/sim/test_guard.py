"""The guard in the simulator."""

import pytest

from anarchic import Settings, simulate
from anarchic.train.compute import Compute

QUICK = {"rounds": 12, "batch": 8, "labels_per_worker": 1, "dynamic_steps": True}


def params(guard, backend="batched", **others):
    run = simulate(Settings(guard=guard, **QUICK, **others), compute=Compute(backend=backend))
    return run.params.tobytes(), run.summary


@pytest.mark.parametrize("backend", ["loop", "batched"])
@pytest.mark.parametrize("rule", ["afa-cd", "afa-cs", "fedbuff"])
def test_a_guard_that_clips_nothing_changes_no_byte(rule, backend):
    plain, summary = params(None, backend, rule=rule)
    assert "clipped" not in summary
    guarded, summary = params(1e9, backend, rule=rule)
    assert guarded == plain
    assert (summary["clipped"], summary["farthest"] > 1) == (0, True)


def test_a_tight_guard_clips_and_says_so():
    plain, _ = params(None)
    guarded, summary = params(1.0)
    assert guarded != plain
    assert 0 < summary["clipped"] < summary["updates"]


class Stopped(Exception):
    pass


@pytest.mark.parametrize("local_rule", ["sgd", "scaffold"])
def test_a_guarded_run_is_resumed_to_the_same_bytes(local_rule, tmp_path):
    def stop(progress):
        if progress.round == 7:
            raise Stopped

    settings = Settings(guard=1.0, local_rule=local_rule, **QUICK)
    with pytest.raises(Stopped):
        simulate(settings, out=tmp_path / "run", checkpoint_every=2, watch=stop)
    resumed, whole = simulate(out=tmp_path / "run", resume=True), simulate(settings)
    assert resumed.params.tobytes() == whole.params.tobytes()
    assert resumed.summary["clipped"] == whole.summary["clipped"] > 0
