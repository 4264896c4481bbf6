"""Files that no honest person brings, to every reader: one sentence of ours, and little memory."""

import json
import lzma
import os
import socket
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from typer.testing import CliRunner

from anarchic import simulate, wire
from anarchic.cli.app import app
from anarchic.core.factory import RuleSettings
from anarchic.core.reading import parse_json, printable, read_file, shown
from anarchic.data import load
from anarchic.errors import AnarchicError, ConfigError, DataError, RunError
from anarchic.participation.availability import read_availability
from anarchic.participation.timetable import Timetable
from anarchic.report.runs import compare_runs, read_run
from anarchic.sim.record import RunDirectory
from anarchic.sim.settings import Settings
from anarchic.sim.traced import build_traced
from anarchic.study.results import read_results
from anarchic.theory import judge
from anarchic.theory.numbers import KnownNumbers
from anarchic.worker import Connection, Retry, WorkPlan, WorkSettings
from anarchic.worker import run as work

DEEP = b"[" * 100_000
GIANT = b"x" * 200_000  # longer than a field of the csv module may be
CONTENTS = {
    "empty": b"",
    "one byte": b"{",
    "deep list": DEEP,
    "deep object": b'{"a":' * 100_000,
    "infinite": b'{"a": 1e999}',
    "not a number": b"NaN",
    "many digits": b"9" * 5_000,
    "giant field": b"worker,from_s,until_s\n" + GIANT + b",0,1\n",
    "null bytes": b"\x00" * 300,
    "not utf-8": b"\xff\xfe\xfd",
    "escapes": b"\x1b]0;mine\x07",
    "a list": b"[1, 2]",
    "a string": b'"text"',
    "null": b"null",
    "endless header": b"\xff" * 8,
    "deep header": len(DEEP).to_bytes(8, "little") + DEEP,
}
KINDS = ["missing", "directory", "fifo", "loop", "device", "socket", "huge"]


def make(path, what):
    """Something at ``path`` that is no file of the kind that is wanted."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    if what in CONTENTS:
        path.write_bytes(CONTENTS[what])
    elif what == "directory":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "loop":
        path.symlink_to(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    elif what == "huge":
        with open(path, "wb") as file:
            file.truncate(1 << 40)


def sentence(error):
    """What the command line would print of it, on one line and not a page long."""
    text = str(error) if isinstance(error, AnarchicError) else f"{error.filename}: {error.strerror}"
    assert printable(text) == text, "not printable, or too long"
    return text


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


READERS = {
    "model": ("f", wire.load_model),
    "state": ("f", wire.read),
    "state in memory": ("f", lambda path: wire.decode_state(read_file(path, most=1 << 20))),
    "availability": ("f", read_availability),
    "token": ("f", lambda path: WorkSettings(server="http://a", task="t", token_file=path).token()),
}
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
# What these readers may take: an empty file has no rows, and a token is any text of its form.
FINE = {
    *(("metrics", what) for what in ("empty", "missing")),
    *(("token", what) for what in CONTENTS),
    *((name, "missing") for name in ("summary", "checkpoint")),
    *((name, "loop") for name in ("summary", "checkpoint", "metrics")),  # counts as missing
}


def refused(read, path, name, what):
    tracemalloc.start()
    try:
        read(path)
        assert (name, what) in FINE, "it was taken"
    except (AnarchicError, OSError) as error:
        sentence(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.tried(
    "deep JSON, giant fields, NUL bytes, pipes, devices, loops and files of 1 TiB, to every reader",
    before="tracebacks (RecursionError, TypeError, csv.Error), a pipe was waited for",
    now="one sentence each, within 64 MB",
)
@pytest.mark.parametrize("what", [*CONTENTS, *KINDS])
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_such_file_is_refused(name, what, tmp_path):
    file, read = READERS[name]
    make(tmp_path / file, what)
    refused(read, tmp_path / file, name, what)


@pytest.mark.parametrize("what", [*CONTENTS, *KINDS])
@pytest.mark.parametrize("name", IN_RUNS)
def test_a_damaged_run_directory_is_refused(name, what, run):
    file, read = IN_RUNS[name]
    make(run / file, what)
    refused(read, run, name, what)


@pytest.mark.parametrize("what", [*CONTENTS, *KINDS])
def test_damaged_results_are_refused(what, tmp_path):
    make(tmp_path / "results.jsonl", what)
    refused(read_results, tmp_path / "results.jsonl", "metrics", what)


RESULT = {"task": "lr", "cell": "a", "seed": 0, "numbers": {}, "settings": {}}


@pytest.mark.parametrize(
    "wrong",
    [{"task": []}, {"seed": "0"}, {"seed": True}, {"numbers": 5}, {"settings": None}, {"more": 1}],
)
def test_a_result_of_the_wrong_type_is_refused(wrong, tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(RESULT) + "\n" + json.dumps({**RESULT, **wrong}) + "\n")
    with pytest.raises(RunError, match=r"Line 2 of .* is not a result"):
        read_results(path)


# Values of the wrong type in files of the right form


def change(path, **changes):
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, **changes}))


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


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("worker,from_s\n0,1\n", "until_s is missing"),
        ("worker,from_s,until_s,worker\n0,1,2,0\n", "worker occurs twice"),
        ("worker,from_s,until_s\n0,1,2,3\n", "4 values for 3 columns"),
        ("worker,from_s,until_s\n0,1\n", "ends before it"),
        ("worker,from_s,until_s\n" + "9" * 5_000 + ",1,2\n", "is not a worker number"),
        ("worker,from_s,until_s\n0,1e999,2\n", "not a time"),
        ("worker,from_s,until_s\n0,nan,2\n", "not a time"),
        ("worker,from_s,until_s\n\x00,1,2\n", "is not a worker number"),
        ("worker,from_s,until_s\n" + "x" * 200_000 + ",1,2\n", "field larger"),
        ("x" * 100_000 + "\n", "is missing"),
        ("worker,from_s,until_s\n", "no windows"),
    ],
)
def test_a_wrong_trace_is_refused(lines, why, tmp_path):
    (tmp_path / "trace.csv").write_text(lines)
    with pytest.raises(DataError, match=why) as error:
        read_availability(tmp_path / "trace.csv")
    assert len(sentence(error.value)) < 500


# Timetables


def table(path, **changes):
    """A timetable of one round of two updates, as a file."""
    columns = {name: np.zeros(2, np.int32) for name in ("visit", "base_version")}
    columns |= {"worker": np.arange(2, dtype=np.int32), "local_steps": np.ones(2, np.int32)}
    numbers = {"workers": 2, "m": 2}
    for name, value in changes.items():
        (numbers if name in ("workers", "m", "before") else columns)[name] = value
    wire.write(path, columns, numbers)
    return path


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


def traced(path):
    found = Timetable.from_arrays(*wire.read(path))
    return build_traced(Settings(rounds=1, workers=2, m=2), found, name="t")


def test_the_command_says_so_in_one_line(tmp_path):
    steps = np.array([1, 2**31 - 1], np.int32)
    path = table(tmp_path / "timetable.safetensors", local_steps=steps)
    result = CliRunner().invoke(app, ["simulate", "--trace", str(path)])
    assert result.exit_code == 2
    assert result.output.startswith("Error: Row 1 of the timetable has local_steps=2147483647; ")


def test_the_timetable_as_it_is_is_fine(tmp_path):
    path = table(tmp_path / "timetable.safetensors")
    assert traced(path).timetable.rounds == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--local-steps", "2000000000"],
        ["--local-steps", "2000000", "--batch", "64"],
        ["--batch", "2000000000"],
        ["--workers", "2000000000"],
        ["--rounds", "20000000000000"],
        ["--m", "20000000000000"],
    ],
    ids=" ".join,
)
def test_settings_that_ask_for_too_much_are_refused(options):
    result = CliRunner().invoke(app, ["simulate", "--rounds", "1", *options])
    assert result.exit_code in (1, 2), result.output
    assert result.output.count("Error: ") == 1
    assert isinstance(result.exception, SystemExit)


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


# Data sets


@pytest.mark.parametrize("packed", ["", ".gz", ".xz"])
@pytest.mark.parametrize("what", CONTENTS)
def test_a_damaged_data_file_is_refused(what, packed, tmp_path):
    for folder, file in (("mnist", "train-images-idx3-ubyte"), ("shakespeare", "pg100.txt")):
        (tmp_path / folder).mkdir()
        make(tmp_path / folder / f"{file}{packed}", what)
        with pytest.raises(DataError) as error:
            load(folder, tmp_path)
        sentence(error.value)


@pytest.mark.parametrize("shape", [(-1, -1, 784), (2**31 - 1, 28, 28), (0, 0, 0), (1, -28, -28)])
def test_impossible_shapes_are_refused(shape, tmp_path):
    (tmp_path / "mnist").mkdir()
    head = bytes((0, 0, 8, 3)) + b"".join(n.to_bytes(4, "big", signed=True) for n in shape)
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(head + bytes(784))
    with pytest.raises(DataError, match="damaged"):
        load("mnist", tmp_path)


def test_a_small_file_that_unpacks_to_much_is_refused(tmp_path, monkeypatch):
    from anarchic.data import files

    monkeypatch.setattr(files, "MAX_BYTES", 1 << 20)
    (tmp_path / "mnist").mkdir()
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.xz"
    path.write_bytes(lzma.compress(bytes(1 << 24)))
    tracemalloc.start()
    with pytest.raises(DataError, match="holds more than 1,048,576 bytes"):
        load("mnist", tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 << 20  # of the 16 MiB in it; most of that is the decompressor's


# Records of the Python API


@pytest.mark.tried(
    "settings of the wrong type, such as a port in quotes",
    before="a bare TypeError",
    now="a ConfigError that names the setting",
)
@pytest.mark.parametrize("value", ["text", [], {}, object(), b"5", 1j, True, float("nan")])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (RuleSettings, "m"),
        (RuleSettings, "cap"),
        (Connection, "timeout_s"),
        (Connection, "least_rate"),
        (Retry, "tries"),
        (Retry, "first_s"),
        (WorkPlan, "local_lr"),
        (WorkPlan, "updates"),
        ("WorkSettings", "updates"),
        ("WorkSettings", "timeout_s"),
        ("Limits", "burst"),
        ("Limits", "least_rate"),
        ("ServerSettings", "step_after_s"),
        ("RunSettings", "history"),
        ("Address", "port"),
    ],
)
def test_a_setting_of_the_wrong_type_is_named(kind, name, value):
    settings = pytest.importorskip("anarchic.server.settings")
    needs = {"WorkSettings": {"server": "http://a", "task": "t"}, "RunSettings": {"store": "a.db"}}
    given = {**needs.get(kind, {}), name: value}
    if isinstance(kind, str):
        kind = WorkSettings if kind == "WorkSettings" else getattr(settings, kind)
    if value != value and kind is WorkSettings:  # is checked by the Connection that is made of it
        return
    with pytest.raises(ConfigError, match=name):
        kind(**given)


@pytest.mark.parametrize("name", ["server", "task", "policy", "dtype", "local_rule", "spool"])
@pytest.mark.parametrize("value", [5, [], b"text"])
def test_a_text_of_the_wrong_type_is_named(name, value):
    with pytest.raises(ConfigError, match=f"^{name} must be a (text|path)"):
        WorkSettings(**{"server": "http://a", "task": "t", name: value})


@pytest.mark.parametrize(
    "given",
    [
        {"run": 5},
        {"run": {"store": "a.db"}},
        {"rules": 5},
        {"rules": {"m": "5"}},
        {"rules": {"mm": 5}},
        {"settings": "text"},
        {"address": "127.0.0.1:80"},
    ],
    ids=shown,
)
def test_a_server_is_not_started_with_other_things_than_settings(given, tmp_path):
    server = pytest.importorskip("anarchic.server")
    first = server.RunSettings(store=tmp_path / "a.db", init=tmp_path / "model")
    with pytest.raises(ConfigError, match=r"must be|There is no setting 'mm'"):
        server.run(**{"run": first, **given})
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize("value", [5, "text", {}])
def test_records_inside_records_are_checked(value):
    with pytest.raises(ConfigError, match="retry must be a Retry"):
        Connection(retry=value)
    with pytest.raises(ConfigError, match="settings must be a WorkSettings"):
        work(value)


def test_names_in_a_run_directory_do_not_reach_the_terminal(run):
    change(run / "settings.json", rule="\x1b[2Jmine")
    result = CliRunner().invoke(app, ["compare", str(run), str(run)])
    assert result.exit_code == 0, result.output
    assert "\\x1b[2Jmine" in result.output
    assert "\x1b[2J" not in result.output


# The tools


def test_a_file_is_read_to_its_limit(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"12345")
    assert read_file(path, most=5) == b"12345"
    with pytest.raises(OSError, match="It has 5 bytes, at most 4 are read"):
        read_file(path, most=4)
    (tmp_path / "link").symlink_to(path)
    assert read_file(tmp_path / "link", most=5) == b"12345"
    with pytest.raises(OSError, match="symbolic link"):
        read_file(tmp_path / "link", most=5, follow=False)


def test_texts_are_made_printable():
    assert printable("a\x1b[31m\u202eb\n") == "a\\x1b[31m\\u202eb\\n"
    assert printable("é\nx", keep="\n") == "é\nx"
    assert printable("x" * 9, most=3) == "xxx..."
    assert parse_json(b'{"a": [1.5]}') == {"a": [1.5]}
