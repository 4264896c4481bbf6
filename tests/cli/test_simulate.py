"""Recording, resuming, and everything that must be refused without touching a file."""

import json
import os
import shutil
import signal
import time

import pytest

from anarchic.cli.simulate import _ending_between_rounds
from anarchic.sim.record import RunDirectory
from anarchic.sim.settings import Settings
from anarchic.train.compute import Compute
from tests.cli.conftest import contents

pytest.importorskip("torch")
QUICK = ("simulate", "--rounds", 6, "--batch", 8)


def recorded_settings(path):
    return Settings.from_record(RunDirectory(path).settings())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small recorded run; tests that may change it copy it."""
    from anarchic.sim.simulate import simulate

    path = tmp_path_factory.mktemp("runs") / "run"
    simulate(Settings(rounds=6, batch=8), out=path)
    return path


def test_a_run_is_recorded_and_summed_up(anarchic, tmp_path):
    shown = anarchic(*QUICK, "--out", tmp_path / "run", "--rule", "afa-cs", "--max-staleness", 2)
    assert shown.exit_code == 0, shown.output
    assert shown.stderr == ""  # no bar where there is no terminal
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert (settings["rule"], settings["max_staleness"], summary["rounds"]) == ("afa-cs", 2, 6)
    for part in (f"{100 * summary['final_accuracy']:.1f} %", "6", "30", str(tmp_path / "run")):
        assert part in shown.output


def test_flags_become_settings(anarchic, tmp_path):
    options = {
        "--workers": "6",
        "--m": "3",
        "--dirichlet": "0.5",
        "--local-steps": "2",
        "--local-lr": "0.05",
        "--server-lr": "2.0",
        "--server-opt": "momentum",
        "--rule": "fedbuff",
        "--rule-option": "power=1",
        "--local-rule": "prox",
        "--mu": "0.2",
        "--staleness-power": "0.5",
        "--clip": "9",
        "--guard": "20",
        "--participation": "exponential",
        "--idle-s": "2",
        "--step-s": "0.1",
        "--time-distribution": "constant",
        "--slow-share": "0.5",
        "--slow-factor": "3",
        "--lost-share": "0.1",
        "--until-s": "7",
        "--backend": "loop",
        "--dtype": "float64",
        "--threads": "1",
        "--lookahead": "7",
        "--seed": "4",
        "--eval-every": "2",
        "--target-accuracy": "0.99",
    }
    flat = [part for pair in options.items() for part in pair]
    shown = anarchic(*QUICK, *flat, "--dynamic-steps", "--out", tmp_path / "run")
    assert shown.exit_code == 0, shown.output
    assert recorded_settings(tmp_path / "run") == Settings(
        rounds=6,
        batch=8,
        workers=6,
        m=3,
        dirichlet=0.5,
        local_steps=2,
        local_lr=0.05,
        server_lr=2.0,
        server_opt="momentum",
        rule="fedbuff",
        rule_options={"power": 1.0},
        local_rule="prox",
        mu=0.2,
        clip=9.0,
        guard=20.0,
        staleness_power=0.5,
        participation="exponential",
        idle_s=2.0,
        step_s=0.1,
        time_distribution="constant",
        slow_share=0.5,
        slow_factor=3.0,
        lost_share=0.1,
        until_s=7.0,
        seed=4,
        dtype="float64",
        eval_every=2,
        target_accuracy=0.99,
        dynamic_steps=True,
    )
    found = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert Compute(**found["compute"]) == Compute(backend="loop", threads=1, lookahead=7)


def test_a_run_on_data_with_options_is_recorded_and_resumed_with_them(anarchic, tmp_path):
    from anarchic.sim.simulate import simulate

    data = ("--data", "synthetic", "--data-option", "beta=0", "--data-option", "workers=5")
    shown = anarchic(*QUICK, *data, "--m", 2, "--out", tmp_path / "run")
    assert shown.exit_code == 0, shown.output
    options = {"beta": 0.0, "workers": 5}
    assert recorded_settings(tmp_path / "run").data_options == options
    resumed = simulate(out=tmp_path / "run", resume=True)
    again = simulate(recorded_settings(tmp_path / "run"))
    assert resumed.params.tobytes() == again.params.tobytes()


def test_sampler_flags_become_settings(anarchic, tmp_path):
    probabilities = ("--workers", 4, "--m", 2, "--arrival-probs", "0.1,0.2,0.3,0.4", "--replace")
    shown = anarchic(*QUICK, *probabilities, "--out", tmp_path / "run")
    assert shown.exit_code == 0, shown.output
    found = recorded_settings(tmp_path / "run")
    assert (found.arrival_probs, found.replace) == ((0.1, 0.2, 0.3, 0.4), True)


def test_without_out_nothing_is_written(anarchic, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert anarchic(*QUICK).exit_code == 0
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--rule nope", "There is no rule 'nope'"),
        ("--local-rule nope", "There is no local rule 'nope'"),
        ("--data nope", "There is no data set 'nope'"),
        ("--model nope", "There is no model 'nope'"),
        ("--device tpu", "There is no device 'tpu'"),
        ("--dtype float16", "There is no dtype 'float16'"),
        ("--slow-share 0.3", "'sampler' has no use for slow_share=0.3"),
        ("--workers 4 --m 5", "Cannot draw m=5 of 4 workers"),
        ("--workers 7 --labels-per-worker 3", "cannot hold each class equally often"),
        ("--arrival-probs 0.1,x", "numbers separated by commas"),
        ("--arrival-probs 0.5,0.5", "one probability for each of 10 workers"),
        ("--rule-option power", "NAME=VALUE"),
        ("--rule-option power=1", "AfaCd has no setting 'power'"),
        ("--rule fedbuff --rule-option power=x", "must be a number"),
        ("--local-option beta=0.5", "Sgd has no setting 'beta'"),
        ("--data-option roles=9", "digits has no option 'roles'. Its options: none"),
        ("--data synthetic --data-option betta=1", "Did you mean 'beta'?"),
        ("--data synthetic --data-option workers=x", "must be a whole number, got 'x'"),
        ("--threads 0", "threads must be at least 1"),
        ("--rounds 0", "at least one round"),
        ("--labels-per-worker 2 --dirichlet 1", "not by both"),
        ("--participation exponential --rule fedavg --lost-share 0.5", "timeout_s"),
    ],
)
def test_misuse_is_refused_in_one_sentence(refused, tmp_path, arguments, sentence):
    assert sentence in refused(2, *QUICK, *arguments.split(), "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("arguments", ["--rounds x", "--nope", "--checkpoint-every 0"])
def test_what_cannot_be_parsed_is_misuse(anarchic, arguments):
    shown = anarchic("simulate", *arguments.split())
    assert shown.exit_code == 2
    assert "Traceback" not in shown.output


def test_a_truncated_data_file_is_named(refused, tmp_path):
    place = tmp_path / "data" / "mnist"
    place.mkdir(parents=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (place / f"{name}-ubyte").write_bytes(b"\0\0\x08\x03\0\0")
    options = ("--data", "mnist", "--data-dir", tmp_path / "data", "--out", tmp_path / "run")
    assert "train-images-idx3-ubyte is damaged" in refused(1, *QUICK, *options)
    assert not (tmp_path / "run").exists()


def test_a_truncated_real_file_is_named(refused, tmp_path):
    source = os.environ.get("ANARCHIC_DATA")
    if not source or not os.path.isdir(f"{source}/mnist"):
        pytest.skip("needs MNIST: set ANARCHIC_DATA to a folder that holds it")
    place = shutil.copytree(f"{source}/mnist", tmp_path / "data" / "mnist")
    victim = next(path for path in place.iterdir() if path.name.startswith("train-images"))
    victim.chmod(0o644)
    os.truncate(victim, victim.stat().st_size // 2)
    line = refused(1, *QUICK, "--data", "mnist", "--data-dir", tmp_path / "data")
    assert str(victim) in line


def test_divergence_is_a_failure(refused):
    assert "diverged" in refused(1, *QUICK, "--local-lr", 1e30)


def test_a_directory_that_holds_something_is_left_alone(refused, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    assert "not empty" in refused(1, *QUICK, "--out", tmp_path)
    assert contents(tmp_path) == before


def test_a_run_is_not_overwritten(refused, finished):
    before = contents(finished)
    assert "not empty" in refused(1, *QUICK, "--out", finished)
    assert contents(finished) == before


def test_resume_with_other_settings_is_refused(refused, finished):
    before = contents(finished)
    line = refused(1, "simulate", "--resume", "--out", finished, "--local-lr", 0.2)
    assert "local_lr is 0.1 there and 0.2 here" in line
    assert contents(finished) == before


def test_resume_with_more_rounds_goes_on_further(refused, anarchic, tmp_path):
    run, whole = tmp_path / "run", tmp_path / "whole"
    assert anarchic(*QUICK, "--out", run, "--checkpoint-every", 2).exit_code == 0
    further = anarchic("simulate", "--resume", "--rounds", 9, "--out", run)
    assert further.exit_code == 0, further.output
    assert "had finished before" not in further.output
    assert anarchic(*QUICK, "--rounds", 9, "--out", whole).exit_code == 0
    for name in ("model.safetensors", "timetable.safetensors"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()
    assert json.loads((run / "settings.json").read_text())["rounds"] == 9
    assert "had finished before" in anarchic("simulate", "--resume", "--out", run).output
    line = refused(1, "simulate", "--resume", "--rounds", 8, "--out", run)
    assert "rounds is 9 there and 8 here" in line


def test_a_checkpoint_of_another_run_is_refused(refused, anarchic, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    assert anarchic(*QUICK, "--out", one, "--checkpoint-every", 2).exit_code == 0
    assert anarchic(*QUICK, "--out", two, "--seed", 1).exit_code == 0
    (two / "summary.json").unlink()
    shutil.copy(one / "checkpoint.safetensors", two)
    before = contents(two)
    assert "the checkpoint of another run" in refused(1, "simulate", "--resume", "--out", two)
    assert contents(two) == before


def test_a_damaged_checkpoint_is_refused(refused, anarchic, tmp_path):
    run = tmp_path / "run"
    assert anarchic(*QUICK, "--out", run, "--checkpoint-every", 2).exit_code == 0
    (run / "summary.json").unlink()
    os.truncate(run / "checkpoint.safetensors", 100)
    before = contents(run)
    assert "checkpoint.safetensors" in refused(1, "simulate", "--resume", "--out", run)
    assert contents(run) == before


def test_resume_of_no_run_is_refused(refused, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    assert "not the directory of a run" in refused(1, "simulate", "--resume", "--out", tmp_path)
    assert "not the directory" in refused(1, "simulate", "--resume", "--out", tmp_path / "none")
    assert contents(tmp_path) == before
    assert "--out" in refused(2, "simulate", "--resume")


def test_resume_of_a_finished_run_shows_its_summary(anarchic, finished):
    before = contents(finished)
    shown = anarchic("simulate", "--resume", "--out", finished)
    assert shown.exit_code == 0
    assert "had finished before" in shown.output
    assert contents(finished) == before


def test_settings_of_another_version_are_not_guessed(refused, finished, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    found = json.loads((copy / "settings.json").read_text())
    (copy / "settings.json").write_text(json.dumps(found | {"quantum": True}))
    assert "quantum" in refused(1, "simulate", "--resume", "--out", copy)


# Enough rounds that the run cannot end before it is stopped, with many chances to be stopped at.
LONG = (
    "simulate",
    "--rounds",
    1500,
    "--batch",
    16,
    "--max-staleness",
    4,
    "--local-rule",
    "scaffold",
)
OFTEN = ("--checkpoint-every", 7)


def wait_until(so, program):
    deadline = time.monotonic() + 60
    while not so():
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bytes(anarchic, process, tmp_path):
    run = tmp_path / "killed"
    program = process(*LONG, *OFTEN, "--out", run)
    wait_until((run / "checkpoint.safetensors").exists, program)
    program.send_signal(signal.SIGKILL)
    program.communicate(timeout=60)
    assert not (run / "summary.json").exists(), "it ended before it was killed"
    assert anarchic("simulate", "--resume", "--out", run).exit_code == 0
    assert anarchic(*LONG, "--out", tmp_path / "whole").exit_code == 0
    for name in ("model.safetensors", "timetable.safetensors"):
        assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_an_interrupted_run_is_recorded_and_says_how_to_go_on(anarchic, process, tmp_path):
    run = tmp_path / "a run"
    program = process(*LONG, "--out", run)  # it is over before a checkpoint would be due
    wait_until(lambda: rows(run) > 3, program)
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out) == (130, "")
    assert err == (
        "Interrupted. To go on from the last checkpoint: "
        f"anarchic simulate --resume --out '{run}'\n"
    )
    _, numbers = RunDirectory(run).load_checkpoint()
    assert numbers["metrics"][-1]["round"] >= 60
    assert anarchic("compare", run).exit_code == 0  # still going, as far as anyone can tell


def rows(run):
    """How many evaluations are recorded; there is one every thirty rounds."""
    path = run / "metrics.csv"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_second_interrupt_does_not_wait_for_the_round():
    heard, former = [], signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with _ending_between_rounds(heard.append) as watch:
            watch("round 1")
            signal.raise_signal(signal.SIGINT)  # noted
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                watch("round 2")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, former)
    assert heard == ["round 1", "round 2"]


def test_metrics_and_callbacks_are_named_on_the_command_line(
    anarchic, refused, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judging.py").write_text(
        "def share_wrong(predicted, targets):\n    return (predicted != targets).mean()\n"
    )
    words = ("simulate", "--rounds", 40, "--eval-every", 1, "--batch", 16, "--out", "run")
    metric = ("--metric", "share_wrong=judging:share_wrong")
    shown = anarchic(*words, *metric, "--callback", "keep-best,early-stop")
    assert shown.exit_code == 0, shown.output
    assert "stopped: none of the last 10 evaluations was better" in " ".join(shown.output.split())
    last = RunDirectory(tmp_path / "run").metrics()[-1]
    assert last["share_wrong"] == pytest.approx(1 - last["accuracy"])
    assert (tmp_path / "run" / "best.safetensors").exists()
    told = refused(2, *words, "--metric", "judging:share_wrong")
    assert "--metric takes NAME=MODULE:FUNCTION" in told
    assert "no callback 'nobody'" in refused(2, *words, "--callback", "nobody")
