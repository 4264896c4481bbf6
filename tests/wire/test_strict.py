import re
from pathlib import Path

import numpy as np
import pytest

from anarchic import Layout, wire
from tests.wire.make import FACTS, LAYOUT, by_hand, by_library, decode, entries, ramp, refused

BAD_BODIES = {
    "empty": (b"", "0 bytes"),
    "shorter than a length": (b"1234567", "7 bytes"),
    "a giant header": (b"\xff" * 8 + b"{}", "claims 18446744073709551615 bytes"),
    "a header longer than the body": (b"\x10" + b"\0" * 7 + b"{}", "only 2 follow"),
    "no header": (b"\0" * 8, "begin with"),
    "a list": (by_hand(b"[1]"), "begin with"),
    "a space first": (by_hand(b" {}"), "begin with"),
    "a byte order mark": (by_hand("\ufeff{}".encode()), "begin with"),
    "not UTF-8": (by_hand(b'{"\xff":1}'), "not JSON in UTF-8"),
    "UTF-16": (by_hand('{"a":1}'.encode("utf-16-le")), "not JSON in UTF-8"),
    "cut JSON": (by_hand(b'{"a":'), "not JSON"),
    "two objects": (by_hand(b"{}{}"), "not JSON"),
    "a number of 10,000 digits": (by_hand(b'{"a":' + b"9" * 10_000 + b"}"), "not JSON"),
    "minus zero": (by_hand(b'{"a":-0}'), "not JSON"),
    "NaN": (by_hand(b'{"a":NaN}'), "not JSON"),
    "a float": (by_hand(b'{"a":1e3}'), "not JSON"),
    "a name twice": (by_hand(b'{"a":1,"a":1}'), "occurs twice"),
    "deep nesting": (by_hand(b'{"a":' + b"[" * 60_000 + b"]" * 5_000 + b"}"), "brackets"),
    "more brackets than the model has use for": (
        by_hand(b'{"b":[' + b"[]," * 400 + b"[]]}"),
        "too many brackets",
    ),
    "nesting that the parser survives": (
        by_hand(b'{"b":' + b"[" * 150 + b"]" * 150 + b"}"),
        "must have dtype",
    ),
    "no tensors": (by_hand({"__metadata__": FACTS}), "missing 'b', 'scale', 'w'"),
    "an unknown tensor": (
        by_library(**LAYOUT.split(ramp()), zz=np.ones(1)),
        "unknown 'zz'",
    ),
    "an extra that the rule does not know": (
        by_library(**LAYOUT.split(ramp()) | {"extra:c": ramp()}),
        "unknown 'extra:c'",
    ),
    "another shape": (by_library(**LAYOUT.split(ramp()) | {"w": np.ones((3, 2))}), "wants"),
    "double precision": (by_library(dtype=np.float64), "dtype F64"),
    "whole numbers": (by_library(dtype=np.int32), "'I32'"),
    "extra bytes after the data": (by_library() + b"x", "extra bytes at its end"),
    "a byte missing": (by_library()[:-1], "cut short"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_is_refused(name):
    refused(*BAD_BODIES[name])


def entry(shape, offsets, **more):
    return {"dtype": "F32", "shape": shape, "data_offsets": offsets} | more


BAD_ENTRIES = {
    "two dtypes": {"b": entry([2], [0, 4], dtype="F16")},
    "a dtype that is no string": {"b": entry([2], [0, 8], dtype=["F32"])},
    "null": {"b": None},
    "a list": {"b": []},
    "a part too many": {"b": entry([2], [0, 8], strides=[1])},
    "a part too few": {"b": {"dtype": "F32", "shape": [2]}},
    "true as a shape": {"scale": entry([True], [8, 12])},
    "true as an offset": {"b": entry([2], [False, 8])},
    "a string as an offset": {"b": entry([2], ["0", 8])},
    "three offsets": {"b": entry([2], [0, 8, 8])},
    "offsets backwards": {"b": entry([2], [8, 0])},
    "offsets as an object": {"b": entry([2], {"0": 0})},
    "a shape that is a number": {"b": entry(2, [0, 8])},
    "nested shapes": {"b": entry([[2]], [0, 8])},
    "too short": {"b": entry([2], [0, 4])},
    "a gap": {"w": entry([2, 3], [16, 40])},
    "an overlap": {"w": entry([2, 3], [8, 32])},
    "the same place": {"scale": entry([], [0, 4])},
    "beyond the end": {"w": entry([2, 3], [10**14, 10**14 + 24])},
    "33 axes": {"scale": entry([1] * 33, [8, 12])},
    "metadata as a list": {"__metadata__": list(FACTS.items())},
    "no metadata": {"__metadata__": None},
    "a number in the metadata": {"__metadata__": FACTS | {"local_steps": 5}},
}


@pytest.mark.parametrize("name", BAD_ENTRIES)
def test_a_bad_entry_is_refused(name):
    assert decode(by_hand(entries(), ramp().tobytes())).update.direction.tolist() == list(ramp())
    refused(by_hand(entries(**BAD_ENTRIES[name]), ramp().tobytes()), None)


BAD_FACTS = {
    "id": ["", "a b", "é", "x\n", "\x7f", "\ud800", "x" * 129],
    "worker": ["", "a b", "x\n", "é", "a/b", "x" * 65],
    "base_version": ["", "+1", "-1", "1_0", " 1", "1 ", "01", "1.0", "1e3", "٣", "1\n", "9" * 16],
    "local_steps": ["", "five", "0x5", "9" * 5000],
    "samples": ["", "-1", "1.5"],
    "local_lr": ["", "nan", "inf", "-Infinity", "1e999", ".5", "5.", "+1", "1_0", " 1", "0x1p3"],
    "loss": ["NaN", "1e400", "1" * 65, "٣", "1,5"],
    "surprise": ["1"],
}


@pytest.mark.parametrize(("name", "text"), [(n, t) for n, ts in BAD_FACTS.items() for t in ts])
def test_bad_metadata_are_refused(name, text):
    header = entries(__metadata__=FACTS | {name: text})
    refused(by_hand(header, ramp().tobytes()), f"'{name}'")


def test_an_error_describes_a_valid_name():
    header = entries(__metadata__=FACTS | {"id": "a b"})
    refused(by_hand(header, ramp().tobytes()), "must be 1 to 128 printable ASCII characters")


@pytest.mark.parametrize("name", FACTS)
def test_missing_metadata_are_refused(name):
    header = entries(__metadata__={key: text for key, text in FACTS.items() if key != name})
    refused(by_hand(header, ramp().tobytes()), f"missing '{name}'")


@pytest.mark.parametrize("text", ["0", "1", "999999999999999"])
def test_whole_numbers_are_taken_exactly(text):
    header = entries(__metadata__=FACTS | {"base_version": text})
    assert decode(by_hand(header, ramp().tobytes())).update.base_version == int(text)


@pytest.mark.parametrize("text", ["0.05", "1e-05", "1E3", "1", "2.5e+2", "-0.5"])
def test_numbers_are_taken_as_json_writes_them(text):
    header = entries(__metadata__=FACTS | {"loss": text})
    assert decode(by_hand(header, ramp().tobytes())).loss == float(text)


def test_the_bytes_in_the_documentation_are_an_update():
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
    rows = re.findall(r"^[0-9a-f]{8}: ((?:[0-9a-f]{2,4} )+)", page, re.M)
    body = bytes.fromhex("".join(rows))
    update = wire.decode_update(body, Layout.of({"w": ((2,), "F32")}), worker="ann").update
    assert (len(body), update.id, update.base_version) == (151, "a1", 7)
    assert (update.local_steps, update.local_lr, update.direction.tolist()) == (5, 0.5, [1, -2])
