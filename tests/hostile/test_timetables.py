"""Timetables that nobody can follow, from a file: refused in one sentence, and little memory."""

import tracemalloc

import numpy as np
import pytest
from typer.testing import CliRunner

from anarchic import wire
from anarchic.cli.app import app
from anarchic.core.reading import shown
from anarchic.errors import AnarchicError
from anarchic.participation.timetable import Timetable
from anarchic.sim.settings import Settings
from anarchic.sim.traced import build_traced
from tests.hostile.odd_files import sentence


def table(path, **changes):
    """A timetable of one round of two updates, as a file."""
    columns = {name: np.zeros(2, np.int32) for name in ("visit", "base_version")}
    columns |= {"worker": np.arange(2, dtype=np.int32), "local_steps": np.ones(2, np.int32)}
    numbers = {"workers": 2, "m": 2}
    for name, value in changes.items():
        (numbers if name in ("workers", "m", "before") else columns)[name] = value
    wire.write(path, columns, numbers)
    return path


def traced(path):
    found = Timetable.from_arrays(*wire.read(path))
    return build_traced(Settings(rounds=1, workers=2, m=2), found, name="t")


@pytest.mark.tried(
    "a timetable that claims 2^31 - 1 local steps or workers",
    before="16 GiB were asked for",
    now="refused in one sentence",
)
@pytest.mark.parametrize(
    "changes",
    [
        {"local_steps": np.array([1, 2**31 - 1], np.int32)},
        {"local_steps": np.array([1, 2**24], np.int32)},
        {"local_steps": np.array([1, 2**24 - 1], np.int32)},
        {"workers": 2**31 - 1},
        {"workers": 2**40},
        {"workers": "2"},
        {"workers": 2.0},
        {"workers": True},
        {"m": 2**31 - 1},
        {"m": 0},
        {"m": []},
        {"before": 2**31 - 1},
        {"before": -1},
        {"worker": np.array(0, np.int32)},
        {"worker": np.zeros((1, 2), np.int32)},
        {"worker": np.zeros(3, np.int32)},
        {"worker": np.zeros(2, np.int64)},
        {"visit": np.zeros(0, np.int32)},
        {"pull_s": np.zeros(2)},
        {"pull_s": np.full(2, np.nan), "push_s": np.full(2, np.nan)},
    ],
    ids=lambda changes: " ".join(f"{name}={shown(v)[:30]}" for name, v in changes.items()),
)
def test_an_impossible_timetable_is_refused(changes, tmp_path):
    path = table(tmp_path / "timetable.safetensors", **changes)
    tracemalloc.start()
    with pytest.raises(AnarchicError) as error:
        traced(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    sentence(error.value)
    assert peak < 64 << 20


def test_the_command_says_so_in_one_line(tmp_path):
    steps = np.array([1, 2**31 - 1], np.int32)
    path = table(tmp_path / "timetable.safetensors", local_steps=steps)
    result = CliRunner().invoke(app, ["simulate", "--trace", str(path)])
    assert result.exit_code == 2
    assert result.output.startswith("Error: Row 1 of the timetable has local_steps=2147483647; ")


def test_the_timetable_as_it_is_is_fine(tmp_path):
    path = table(tmp_path / "timetable.safetensors")
    assert traced(path).timetable.rounds == 1
