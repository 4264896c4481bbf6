"""A recorded run whose files are damaged, to everything that reads it: one sentence of ours."""

import json
from contextlib import suppress

import numpy as np
import pytest
from typer.testing import CliRunner

from anarchic import simulate, wire
from anarchic.cli.app import app
from anarchic.core.reading import shown
from anarchic.errors import AnarchicError, RunError
from anarchic.report.runs import compare_runs, read_run
from anarchic.sim.record import RunDirectory
from anarchic.sim.settings import Settings
from anarchic.theory import judge
from anarchic.theory.numbers import KnownNumbers
from tests.hostile.odd_files import CONTENTS, KINDS, make, refused, sentence


@pytest.fixture(scope="module")
def run_of_three_rounds(tmp_path_factory):
    """A recorded run, with a checkpoint."""
    path = tmp_path_factory.mktemp("run") / "run"
    settings = Settings(rounds=3, local_steps=2, batch=8, m=2, workers=4)
    simulate(settings, out=path, checkpoint_every=1)
    return path


@pytest.fixture
def run(run_of_three_rounds, tmp_path):
    """A copy of it that may be damaged; short, for sockets."""
    path = tmp_path / "r"
    path.mkdir()
    for file in run_of_three_rounds.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    return path


def resumed(path):
    (path / "summary.json").unlink(missing_ok=True)
    simulate(out=path, resume=True)


def compared(path):
    compare_runs([read_run(path)])


def change(path, **changes):
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, **changes}))


IN_RUNS = {
    "settings by compare": ("settings.json", compared),
    "settings by resume": ("settings.json", resumed),
    "summary": ("summary.json", compared),
    "metrics": ("metrics.csv", compared),
    "checkpoint": ("checkpoint.safetensors", resumed),
    "timetable": ("timetable.safetensors", lambda path: RunDirectory(path).timetable()),
    "theory": (
        "timetable.safetensors",
        lambda path: judge(KnownNumbers(), run=path, points=1, repeats=1),
    ),
}


@pytest.mark.parametrize("what", [*CONTENTS, *KINDS])
@pytest.mark.parametrize("name", IN_RUNS)
def test_a_damaged_run_directory_is_refused(name, what, run):
    file, read = IN_RUNS[name]
    make(run / file, what)
    refused(read, run, name, what)


# Values of the wrong type in files of the right form


WRONG = ["text", -1, 1.5, True, None, [], [1], {}, {"a": 1}, 10**400, "\x1b[2J", "9" * 100_000]


@pytest.mark.parametrize("value", WRONG, ids=shown)
@pytest.mark.parametrize(
    "name",
    [
        *("format", "compute", "versions_back", "rounds", "workers", "m", "rule", "local_steps"),
        *("data", "data_options", "arrival_probs", "local_lr", "batch", "dtype", "spread", "lost"),
    ],
)
def test_settings_of_the_wrong_type_in_a_run_are_refused(name, value, run):
    change(run / "settings.json", **{name: value})
    for read in (compared, resumed):
        with suppress(AnarchicError, MemoryError):  # some values are fine, or change nothing
            read(run)


@pytest.mark.parametrize("value", ["text", [], {}, "\x1b"], ids=shown)
@pytest.mark.parametrize("name", ["rounds", "final_accuracy", "peak_rss_mb"])
def test_a_summary_of_the_wrong_type_is_refused(name, value, run):
    change(run / "summary.json", **{name: value})
    with pytest.raises(RunError, match=r"summary\.json is damaged") as error:
        compared(run)
    sentence(error.value)


@pytest.mark.parametrize(
    "lines",
    [
        "round,accuracy\n1,0.5,7\n",
        "round,round\n1,2\n",
        "accuracy\n0.5\n",
        "round,accuracy\n1,inf\n",
        "round,accuracy\nnan,0.5\n",
        "round,accuracy\n1,x\n",
        "round,accuracy\n1e999,0.5\n",
        'round,accuracy\n"1\n2",0.5\n',
        "round\n" + "9" * 200_000 + "\n",
        '"',
    ],
)
def test_metrics_that_are_no_numbers_are_refused(lines, run):
    (run / "metrics.csv").write_text(lines)
    with pytest.raises(RunError, match=r"metrics\.csv cannot be read: ") as error:
        compared(run)
    sentence(error.value)


def test_names_in_a_run_directory_do_not_reach_the_terminal(run):
    change(run / "settings.json", rule="\x1b[2Jmine")
    result = CliRunner().invoke(app, ["compare", str(run), str(run)])
    assert result.exit_code == 0, result.output
    assert "\\x1b[2Jmine" in result.output
    assert "\x1b[2J" not in result.output


# Checkpoints


@pytest.mark.parametrize(
    "changes",
    [
        {"row": -1},
        {"row": 10**6},
        {"row": "3"},
        {"state": 5},
        {"state": {}},
        {"waiting": [10**9]},
        {"waiting": "x"},
        {"metrics": "text"},
        {"metrics": [1]},
        {"metrics": [{"round": "x"}]},
        {"train_seconds": "long"},
        {"run": 5},
    ],
    ids=shown,
)
def test_a_checkpoint_that_does_not_fit_is_refused(changes, run):
    path = run / "checkpoint.safetensors"
    arrays, numbers = wire.read(path)
    wire.write(path, arrays, {**numbers, **changes})
    with pytest.raises(RunError, match=r"put a whole one back|put the right one back") as error:
        resumed(run)
    sentence(error.value)


def test_a_checkpoint_without_an_array_is_refused(run):
    path = run / "checkpoint.safetensors"
    arrays, numbers = wire.read(path)
    for name in arrays:
        wire.write(path, {n: a for n, a in arrays.items() if n != name}, numbers)
        with suppress(RunError):  # a snapshot that nobody needs may be missing
            resumed(run)
        for wrong in (np.zeros(3, np.float32), np.zeros((), np.float64), np.zeros(0, np.int8)):
            wire.write(path, {**arrays, name: wrong}, numbers)
            with suppress(AnarchicError):
                resumed(run)
