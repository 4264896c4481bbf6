"""FedScale's formats; the numbers are small ones of the same form as its files."""

import json
import pickle

import numpy as np
import pytest

from anarchic.errors import ConfigError, DataError
from anarchic.participation import (
    ConstantSteps,
    MeasuredSpeeds,
    Work,
    read_availability,
    read_fedscale,
    read_speeds,
)

TRACE = {
    "3834": {
        "duration": 30,
        "active": [10, 60],
        "inactive": [30, 70],
        "finish_time": 100,
        "model": "CPH1801",
    },
    "17": {"duration": 50, "active": [0, 20], "inactive": [20, 50], "finish_time": 100},
}
SPEEDS = {
    "3834": {"computation": 162.0, "communication": 5648.1},
    "17": {"computation": 54.0, "communication": 100.0},
    "9": {"computation": 108, "communication": 1.0},
}


def written(tmp_path, content, name="trace.json"):
    path = tmp_path / name
    path.write_text(json.dumps(content))
    return path


def rows(windows):
    columns = windows.worker, windows.from_s, windows.until_s
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_devices_become_workers_in_the_order_of_the_file(tmp_path):
    path = written(tmp_path, TRACE)
    assert rows(read_fedscale(path)) == [(0, 10, 30), (0, 60, 70), (1, 0, 50)]
    assert rows(read_fedscale(path, workers=1)) == [(0, 10, 30), (0, 60, 70)]
    assert rows(read_availability(path)) == rows(read_fedscale(path))
    twice = [(0, 10, 30), (0, 60, 70), (0, 110, 130), (0, 160, 170), (1, 0, 50), (1, 100, 150)]
    assert rows(read_fedscale(path, repeats=2)) == twice


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([], "no mapping of devices"),
        ({}, "no mapping of devices"),
        ({"7": {"active": [1]}}, "device '7' has no list inactive"),
        ({"7": {"active": [1], "inactive": []}}, "device '7' has 1 times in active and 0"),
        ({"7": {"active": [5], "inactive": [3]}}, "active from 5 to 3 s"),
        ({"7": {"active": ["5"], "inactive": [3]}}, "active: '5' is not a number"),
        ({"7": {"active": [True], "inactive": [3]}}, "active: True is not a number"),
        ({"7": {"active": [], "inactive": []}}, "no window in which a device is active"),
        ({"7": 5}, "device '7' has no list active"),
    ],
)
def test_an_error_names_the_device(tmp_path, content, problem):
    with pytest.raises(DataError, match=problem):
        read_fedscale(written(tmp_path, content))


def test_too_few_devices_and_repeats_are_refused(tmp_path):
    path = written(tmp_path, TRACE)
    with pytest.raises(DataError, match="2 devices, fewer than workers=3"):
        read_fedscale(path, workers=3)
    with pytest.raises(ConfigError, match="repeats=0"):
        read_fedscale(path, repeats=0)
    short = {"7": {"active": [5], "inactive": [30], "finish_time": 20}}
    with pytest.raises(DataError, match="by finish_time"):
        read_fedscale(written(tmp_path, short), repeats=2)


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("the pickle was opened",))


@pytest.mark.parametrize("name", ["client_behave_trace", "renamed.json", "trace.pkl"])
@pytest.mark.parametrize("read", [read_fedscale, read_speeds])
def test_a_pickle_is_refused_unread_with_a_way_to_convert_it(tmp_path, name, read):
    path = tmp_path / name
    path.write_bytes(pickle.dumps(Trap()))
    if read is read_speeds and not path.suffix:
        return  # without a suffix it is read as CSV
    with pytest.raises(DataError, match=r"json\.dump") as error:
        read(path)
    assert "\n" not in str(error.value)


def test_the_conversion_that_the_error_gives_works(tmp_path):
    import shlex
    import subprocess
    import sys

    path = tmp_path / "client_behave_trace.pkl"
    path.write_bytes(pickle.dumps(TRACE))
    with pytest.raises(DataError) as error:
        read_fedscale(path)
    command = shlex.split(str(error.value).split("convert it: ")[1])
    subprocess.run([sys.executable, *command[1:]], cwd=tmp_path, check=True)
    assert rows(read_fedscale(tmp_path / "client_behave_trace.json"))[0] == (0, 10, 30)


def test_speeds_are_relative_to_the_median(tmp_path):
    speeds = read_speeds(written(tmp_path, SPEEDS))
    assert speeds.tolist() == [1.5, 0.5, 1.0]
    work = Work(ConstantSteps(2), 3.0, MeasuredSpeeds(speeds))
    factor = work.speeds.draw(np.random.default_rng(0), 2)
    seconds = work.draw_seconds(np.random.default_rng(0), np.array([2, 2], np.int32), factor)
    assert seconds.tolist() == [9.0, 3.0]
    with pytest.raises(ConfigError, match="speeds for 3 workers, but 4"):
        work.speeds.draw(np.random.default_rng(0), 4)


def test_speeds_of_a_csv_file(tmp_path):
    path = tmp_path / "speeds.csv"
    path.write_text("worker,factor\n1,0.5\n0,2\n")
    assert read_speeds(path).tolist() == [2, 0.5]
    for text, problem in (
        ("worker,factor\n0,0\n", "one factor above 0, got 0 for 0"),
        ("worker,factor\n0,1\n0,2\n", "line 3: a worker has one factor"),
        ("worker,factor\n1,1\n", "each worker from 0 on"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=problem):
            read_speeds(path)


def test_a_device_without_a_speed_is_refused(tmp_path):
    for device, problem in (({}, "computation: None"), ({"computation": 0}, "must be above 0")):
        with pytest.raises(DataError, match=problem):
            read_speeds(written(tmp_path, {"7": device}))
