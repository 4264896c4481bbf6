"""Sweeps give what single runs give, are resumed, and never run anything twice."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import anarchic
from anarchic import Compute, Settings, simulate
from anarchic.core.files import locked
from anarchic.errors import ConfigError, RunError
from anarchic.study import Asked, groups_of, load_sweep, sweep
from anarchic.study.results import FILE
from anarchic.study.sweeps import at_once_for, batches_of, grid_of, line_of
from tests.study.test_groups import ran

SMALL = {"rounds": 6, "batch": 8, "local_steps": 2, "eval_every": 3}
TIMES = ("seconds", "share_s", "date", "hardware", "software")


def lines(path):
    """The results in a file, without times and machines."""
    records = [json.loads(line) for line in (Path(path) / FILE).read_text().splitlines()]
    return [{n: v for n, v in record.items() if n not in TIMES} for record in records]


def test_the_line_of_a_run_has_the_number_of_the_table():
    run = ran(accuracy=(0.1, 0.5, 0.9), final=0.9, last10=0.5)
    assert line_of(run) == "c seed 0: accuracy 0.9000"
    assert Asked().value(run, "final") == 0.9
    curve = {"round": [0, 1, 2], "val_accuracy": [0.2, 0.4, None], "val_loss": [1.0, 0.8, 0.9]}
    searched = replace(run, numbers={}, curve=curve)
    assert line_of(searched) == "c seed 0: val_accuracy 0.4000"
    assert Asked("val_accuracy").value(searched, "final") == 0.4
    assert line_of(replace(run, curve={})) == "c seed 0: done"


def digest(run):
    return hashlib.sha256(run.params.tobytes()).hexdigest()


def test_a_sweep_gives_the_bytes_of_single_runs(tmp_path):
    found = anarchic.sweep(
        SMALL, rule=["afa-cd", "afa-cs", "fedavg", "mifa"], server_lr=[0.5, 1.0],
        seed=[0, 3], out=tmp_path / "s",
    )  # fmt: skip
    assert len(lines(tmp_path / "s")) == 16
    for outcome in found.findings():
        for result in outcome.results:
            settings = replace(outcome.cell.settings, seed=result.seed, last10=True)
            alone = simulate(settings, compute=Compute(compiled=True))
            assert result.numbers["model"] == digest(alone)
            assert result.curve["accuracy"] == pytest.approx(
                [row["accuracy"] for row in alone.metrics], rel=1e-4
            )


@pytest.mark.slow
def test_equal_models_and_losses_to_rounding_whatever_shares_a_batch(tmp_path):
    """The models of a batch are evaluated in one product, which BLAS may add in another order."""
    every = {"rule": ["afa-cd", "ca2fl"], "seed": range(5), "max_staleness": 4}
    for at_once in (1, 3, 4, 10):
        out = tmp_path / f"{at_once}"
        sweep(**every, rounds=30, eval_every=1, out=out, at_once=at_once)
    alone = lines(tmp_path / "1")
    expected = [losses(line) for line in alone]
    assert len(alone) == 10
    for at_once in (3, 4, 10):
        together = lines(tmp_path / f"{at_once}")
        for found, wanted in zip(map(losses, together), expected, strict=True):
            assert found == pytest.approx(wanted, rel=2e-5)  # one in the last recorded digit
        assert together == alone  # models by their SHA-256, accuracies, times


def losses(line):
    """Those of a line, which are taken out of it."""
    return [*line["curve"].pop("loss"), line["numbers"].pop("loss", 0.0)]


def test_equal_results_of_other_models_whatever_shares_a_batch(tmp_path):
    pytest.importorskip("torch")
    every = {"model": "mlp", "rule": ["afa-cd", "fedbuff"], "seed": range(3), **SMALL}
    for at_once in (1, 5):
        sweep(**every, out=tmp_path / f"{at_once}", at_once=at_once)
    assert lines(tmp_path / "1") == lines(tmp_path / "5")


def test_nothing_is_run_twice_and_what_is_missing_is_run(tmp_path):
    every = {"rule": ["afa-cd", "fedbuff"], "seed": range(2), **SMALL}
    found = sweep(**every, out=tmp_path)
    before = (tmp_path / FILE).read_bytes()
    sweep(**every, out=tmp_path)
    assert (tmp_path / FILE).read_bytes() == before
    kept = before.splitlines(keepends=True)
    (tmp_path / FILE).write_bytes(b"".join(kept[:1] + kept[2:]))
    assert [(job.cell.name, job.seed) for job in found.missing()] == [("rule=afa-cd", 1)]
    sweep(**every, out=tmp_path)
    after = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    assert (after[:1], after[2:]) == (kept[:1], kept[2:])
    assert lines(tmp_path)[1]["numbers"] == json.loads(kept[1])["numbers"]


def test_another_definition_is_refused(tmp_path):
    sweep(rule=["afa-cd"], **SMALL, out=tmp_path)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(RunError, match=r"rounds is 6 there and 7 here.*seeds is \[0\] there and"):
        sweep(rule=["afa-cd"], **{**SMALL, "rounds": 7}, seed=range(2), out=tmp_path)
    with pytest.raises(RunError, match="lookahead is 16 there and 2 here"):
        sweep(rule=["afa-cd"], **SMALL, out=tmp_path, compute=Compute(lookahead=2))
    assert (tmp_path / FILE).read_bytes() == before
    sweep(rule=["afa-cd"], **SMALL, out=tmp_path, compute=Compute(threads=1))  # changes no result


def test_changed_data_are_refused_as_simulate_does(tmp_path):
    file, out = tmp_path / "t.csv", tmp_path / "s"
    file.write_text("a,b,kind\n" + "".join(f"{n % 7},{n % 5},{n % 2}\n" for n in range(60)))
    options = {"path": str(file), "target": "kind"}
    every = {**SMALL, "data": "csv", "data_options": options, "workers": 4, "m": 2}
    sweep(every, seed=range(2), out=out)
    whole = (out / FILE).read_bytes()
    (out / FILE).write_bytes(whole.splitlines(keepends=True)[0])  # as if it had been cut off
    cut, text = (out / FILE).read_bytes(), file.read_text()
    file.write_text(text.replace("kind\n0,", "kind\n6,"))
    with pytest.raises(RunError, match=r"Changed since .*: the data set csv path="):
        sweep(every, seed=range(2), out=out)
    assert (out / FILE).read_bytes() == cut
    other = sweep(every, seed=range(2, 4), out=tmp_path / "other")
    with pytest.raises(RunError, match=r"In .*other, the data set csv .* is not what it was in"):
        groups_of([load_sweep(out), other], Asked())
    file.write_text(text)
    sweep(every, seed=range(2), out=out)
    assert len((out / FILE).read_bytes().splitlines()) == 2


def test_a_directory_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="not empty and holds no sweep"):
        sweep(**SMALL, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_two_processes_do_not_run_one_sweep(tmp_path):
    sweep(**SMALL, out=tmp_path)
    with locked(tmp_path / "runs"), pytest.raises(RunError, match="Another process is running"):
        sweep(**SMALL, out=tmp_path)


def test_diverged_and_failed_runs_are_marked_and_stop_no_other(tmp_path):
    found = sweep(
        {**SMALL, "rule": "fedavg"}, local_lr=[0.1, 1e30], max_staleness=[0, 4], out=tmp_path
    )
    ends = {o.cell.name: o.results[0].stopped_at for o in found.findings()}
    assert ends == {
        "local_lr=0.1+max_staleness=0": "rounds",
        "local_lr=0.1+max_staleness=4": "failed",
        "local_lr=1e+30+max_staleness=0": "diverged",
        "local_lr=1e+30+max_staleness=4": "failed",
    }
    reasons = [o.results[0].numbers.get("reason", "") for o in found.findings()]
    assert "has no use for max_staleness=4" in reasons[1]
    assert "lower its local learning rate" in reasons[2]


def test_failed_runs_are_run_again_only_if_asked(tmp_path):
    every = {"rule": ["afa-cd", "fedavg"], "max_staleness": 4, **SMALL}
    found = sweep(**every, out=tmp_path)
    assert found.missing() == []
    assert [job.cell.name for job in found.missing(retry=True)] == ["rule=fedavg"]


def test_a_sweep_is_read_again(tmp_path):
    made = sweep(rule=["afa-cd", "fedbuff"], seed=range(2), **SMALL, out=tmp_path)
    again = load_sweep(tmp_path)
    assert again.grid.record() == made.grid.record()
    assert repr(again) == f"Sweep({tmp_path}: 4 of 4 runs done)"
    with pytest.raises(RunError, match=r"has no sweep.json"):
        load_sweep(tmp_path / "runs")
    (tmp_path / "sweep.json").write_text('{"base": {}}')
    with pytest.raises(RunError, match="not the definition of a sweep: 'varied'"):
        load_sweep(tmp_path)


def test_kept_runs_are_run_directories(tmp_path):
    sweep(rule=["afa-cd"], **SMALL, out=tmp_path, keep_runs=True)
    (kept,) = (tmp_path / "runs").iterdir()
    assert kept.name == "rule=afa-cd.seed0"
    assert {"model.safetensors", "metrics.csv", "summary.json"} <= {p.name for p in kept.iterdir()}


def test_results_that_were_lost_are_read_from_kept_runs(tmp_path):
    every = {"rule": ["afa-cd", "fedbuff"], **SMALL, "participation": "exponential"}
    sweep(**every, out=tmp_path, keep_runs=True)
    before = lines(tmp_path)
    (tmp_path / FILE).unlink()  # as if it had been killed before they were written
    sweep(**every, out=tmp_path, keep_runs=True)
    assert lines(tmp_path) == before


def test_wrong_numbers_are_refused(tmp_path):
    for wrong, said in (
        ({"jobs": 0}, "jobs must be at least 1, got 0"),
        ({"at_once": 0}, "at_once must be at least 1, got 0"),
        ({"jobs": 2, "compute": Compute(backend="ray")}, "Ray spreads lanes"),
    ):
        with pytest.raises(ConfigError, match=said):
            sweep(**SMALL, **wrong, out=tmp_path / "s")
    with pytest.raises(ConfigError, match="given as seed"):
        sweep(Settings(seed=3), out=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_jobs_of_one_task_share_batches():
    jobs = grid_of(data=["digits", "synthetic"], rule=["afa-cd", "fedbuff"], seed=range(2)).jobs()
    found = [[(job.cell.task, job.seed) for job in batch] for batch in batches_of(jobs, 3)]
    assert [len(batch) for batch in found] == [3, 1, 3, 1]
    assert all(len({task for task, _ in batch}) == 1 for batch in found)
    assert (at_once_for(100, 2), at_once_for(10, 4), at_once_for(0, 2)) == (16, 3, 1)


@pytest.mark.slow
def test_processes_give_the_same_results_and_failures_stay_alone(tmp_path):
    every = {"rule": ["afa-cd", "fedavg"], "local_lr": [0.1, 1e30], "seed": range(3), **SMALL}
    sweep(**every, max_staleness=[0, 2], out=tmp_path / "here")
    sweep(**every, max_staleness=[0, 2], out=tmp_path / "there", jobs=2)
    assert lines(tmp_path / "here") == lines(tmp_path / "there")


@pytest.mark.slow
def test_a_run_whose_process_dies_fails_alone(tmp_path, monkeypatch):
    (tmp_path / "deadly.py").write_text(
        "import os\n"
        "from dataclasses import dataclass\n"
        "from anarchic import AfaCd\n"
        "class Deadly:\n"
        "    def __new__(cls, m=5, server_lr=1.0):\n"
        "        if server_lr == 7:\n"
        "            os._exit(9)\n"
        "        return AfaCd(m=m, server_lr=server_lr)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    grid = {"rule": "deadly:Deadly", "server_lr": [1.0, 2.0, 7.0], **SMALL}
    found = sweep(**grid, seed=range(2), out=tmp_path / "s", jobs=2)
    ends = [[run.stopped_at for run in outcome.results] for outcome in found.findings()]
    assert ends == [["rounds"] * 2, ["rounds"] * 2, ["failed"] * 2]
    (reason, _) = (run.numbers["reason"] for run in list(found.findings())[2].results)
    assert "Its process ended with code 9" in reason


COMMAND = [
    *(sys.executable, "-m", "anarchic", "sweep", "--rule", "afa-cd,afa-cs,fedbuff"),
    *("--seed", "0-3", "--rounds", "30", "--eval-every", "1", "--at-once", "2", "--jobs", "2"),
]


def children(pid):
    """The processes that a process has started."""
    text = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True)
    return [int(word) for word in text.stdout.split()]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_killed_and_resumed_it_gives_the_same_results(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run([*COMMAND, "--out", whole], check=True, capture_output=True)
    with subprocess.Popen([*COMMAND, "--out", cut], stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not (cut / FILE).exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        helpers = children(process.pid)
        process.send_signal(signal.SIGKILL)
    before = (cut / FILE).read_bytes().splitlines()
    assert 0 < len(before) < 12
    assert len(helpers) == 2
    while any(map(alive, helpers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, helpers))
    subprocess.run([*COMMAND, "--out", cut], check=True, capture_output=True)
    assert lines(cut) == lines(whole)
    assert set(before) <= set((cut / FILE).read_bytes().splitlines())  # not run again


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_an_interrupted_sweep_ends_its_helpers_and_says_how_to_go_on(tmp_path):
    words = [*COMMAND, "--rounds", "3000", "--out", tmp_path / "s"]
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # tests in the background do not
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, preexec_fn=heeds) as process:
        deadline = time.monotonic() + 60
        while len(children(process.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        helpers = children(process.pid)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert f"To go on: anarchic sweep --out {tmp_path / 's'}" in told
    assert len(helpers) == 2
    assert not any(map(alive, helpers))
