"""Files that no honest person brings, to every reader: one sentence of ours, and little memory."""

import json
import lzma
import tracemalloc

import pytest

from anarchic import wire
from anarchic.core.reading import parse_json, printable, read_file
from anarchic.data import load
from anarchic.errors import DataError, RunError
from anarchic.participation.availability import read_availability
from anarchic.study.results import read_results
from anarchic.worker import WorkSettings
from tests.hostile.odd_files import CONTENTS, KINDS, make, refused, sentence

READERS = {
    "model": ("f", wire.load_model),
    "state": ("f", wire.read),
    "state in memory": ("f", lambda path: wire.decode_state(read_file(path, most=1 << 20))),
    "availability": ("f", read_availability),
    "token": ("f", lambda path: WorkSettings(server="http://a", task="t", token_file=path).token()),
}


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
