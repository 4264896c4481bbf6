from __future__ import annotations

from anarchic.study import Sweep, sweep
from anarchic.study.estimate import estimate
from anarchic.study.results import FILE, read_results
from anarchic.study.sweeps import grid_of

SMALL = {"rounds": 6, "batch": 8, "local_steps": 2, "eval_every": 3}


def test_a_trial_says_how_long_it_takes_and_writes_nothing(tmp_path):
    grid = grid_of(SMALL, rule=["afa-cd", "fedavg"], max_staleness=[0, 2], seed=range(3))
    found = estimate(Sweep(grid, tmp_path / "s"), jobs=2)
    assert (found.runs, found.missing) == (12, 9)  # three combinations of four can be run
    assert found.seconds > 0
    assert found.basis == "by a trial of 10 rounds"
    assert not (tmp_path / "s").exists()


def test_runs_that_are_done_say_how_long_the_others_take(tmp_path):
    done = sweep(SMALL, rule=["afa-cd", "fedbuff"], seed=range(2), out=tmp_path)
    assert estimate(done).missing == 0
    path = tmp_path / FILE
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    each = [result.share_s for result in read_results(path).by_key.values()]
    path.write_text(path.read_text().replace(f'"share_s": {each[0]}', '"share_s": 5.0'))
    took = [result.share_s for result in read_results(path).by_key.values()]
    found = estimate(done, jobs=2)
    assert found.seconds == sum(took) / 3 / 2
    assert "by the 3 runs that are done" in found.basis


def test_a_trial_that_fails_gives_no_time(tmp_path):
    grid = grid_of(SMALL, rule=["fedasync"], server_lr=[0.5, 1.0])  # which it does not have
    found = estimate(Sweep(grid, tmp_path))
    assert (found.missing, found.seconds, found.basis) == (2, None, "the trial failed")
