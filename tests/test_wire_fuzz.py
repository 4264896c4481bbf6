"""Hostile bytes: an update is either what the library reads too, or malformed; nothing else.

``ANARCHIC_FUZZ`` says how many bodies are tried; ``make fuzz`` tries 100,000.
"""

import json
import os
import re
import time
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
import safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from anarchic import Layout, Update, wire
from anarchic.errors import MalformedUpdate, RunError

BODIES = int(os.environ.get("ANARCHIC_FUZZ", "400"))
fuzz = settings(max_examples=BODIES, database=None, suppress_health_check=list(HealthCheck))

LAYOUT = Layout.of({"w": ((2, 3), "F32"), "b": ((2,), "F32"), "s": ((), "F32"), "é": ((1,), "F32")})
VECTOR = np.linspace(-1, 1, LAYOUT.dim, dtype=np.float32)
EXTRAS = frozenset({"c"})
UPDATE = Update("ann", 3, 5, 0.05, VECTOR, samples=64, extras={"c": 2 * VECTOR}, id="u-1")
SEEDS = [
    wire.encode_update(LAYOUT, UPDATE, dtype=dtype, loss=0.5, worker="ann")
    for dtype in ("F32", "F16", "BF16")
]
FACTS = {"id": "1", "base_version": "0", "local_steps": "1", "local_lr": "1.0"}
SEEDS += [save(LAYOUT.split(VECTOR), metadata=FACTS)]
WIDE = {"F32": "<f4", "F16": "<f2"}

# What breaks parsers: values in place of others, and text in the midst of text.
# fmt: off
VALUES = [
    None, True, False, 0, 1, -1, 4, 2**31, 2**53, 2**63, 2**64 - 1, 10**14, 10**400, 0.5, 1e400,
    "", "0", "+1", " 1", "1_0", "01", "1.", "\u0663", "1e400", "nan", "a b", "F32", "F64", "I32",
    "BF16", "é", "\x00", "\ud800", "x" * 300, [], {}, [[]], [0, 4], [4, 0], [0, 0], [True, 4],
    [0, 4, 4], [2, 3], [3, 2], [6], [1] * 40, [0] * 9,
]
TEXTS = [
    b"NaN", b"-Infinity", b"1e5", b"-0", b"01", b"1_0", b"0x1", b"true", b"null", b"\\u0077",
    b"\\ud800", b"\\udc00", b"\xed\xa0\x80", b"\xff", b"\x00", b"\xef\xbb\xbf", b" ", b"\t", b'"',
    b"\\", b"{", b"}", b"[", b"]", b",", b":", b'"w":{},', b'"__metadata__":{},', b"//",
    b"[" * 2000, b'{"a":' * 2000, b"9" * 5000, b'"id":"2",', "\uff57".encode(), "w\u0301".encode(),
]
# fmt: on
LENGTHS = [0, 1, 7, 2**16, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1]


def split(body):
    length = int.from_bytes(body[:8], "little")
    return body[8 : 8 + length], body[8 + length :]


def whole(header, data):
    return len(header).to_bytes(8, "little") + header + data


def flip(draw, body):
    at, bit = draw(st.integers(0, len(body) - 1)), draw(st.integers(0, 7))
    return body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :]


def truncate(draw, body):
    return body[: draw(st.integers(0, len(body)))]


def extend(draw, body):
    return body + draw(st.binary(min_size=1, max_size=16))


def claim(draw, body):
    length = draw(st.sampled_from(LENGTHS) | st.integers(0, len(body)))
    return length.to_bytes(8, "little") + body[8:]


def insert(draw, body):
    """Text somewhere in the header, whose length is put right again."""
    header, data = split(body)
    at = draw(st.integers(0, len(header)))
    gone = draw(st.integers(0, 3))
    return whole(header[:at] + draw(st.sampled_from(TEXTS)) + header[at + gone :], data)


def edit(draw, body):
    """A value somewhere in the JSON becomes another one, vanishes or moves to another name."""
    tree, data = parsed(body)
    node = tree
    while isinstance(node, (dict, list)) and node:
        names = list(node) if isinstance(node, dict) else list(range(len(node)))
        name = draw(st.sampled_from(names))
        if not isinstance(node[name], (dict, list)) or draw(st.booleans()):
            break
        node = node[name]
    else:
        return body
    what = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
    if what == "replace":
        node[name] = draw(st.sampled_from(VALUES))
    elif what == "remove":
        del node[name]
    elif isinstance(node, dict):
        node[draw(st.sampled_from(["w", "extra:c", "extra:", "loss", "__metadata__", ""]))] = node[
            name
        ]
    else:
        node.insert(0, draw(st.sampled_from(VALUES)))
    return whole(json.dumps(tree).encode(), data)


def lie(draw, body):
    """A value in the metadata becomes another string."""
    tree, data = parsed(body)
    facts = tree.get("__metadata__")
    if not isinstance(facts, dict) or not facts:
        return body
    strings = [value for value in VALUES if isinstance(value, str)]
    name = draw(st.sampled_from(sorted(facts)))
    facts[name] = draw(st.sampled_from(strings) | st.text(max_size=3))
    return whole(json.dumps(tree).encode(), data)


def move(draw, body):
    """Offsets of one tensor shifted, or those of two swapped."""
    tree, data = parsed(body)
    places = [entry for entry in tree.values() if pair_in(entry)]
    if not places:
        return body
    one, two = draw(st.sampled_from(places)), draw(st.sampled_from(places))
    if draw(st.booleans()):
        parts = one["data_offsets"], two["data_offsets"]
        two["data_offsets"], one["data_offsets"] = parts
    else:
        by = draw(st.sampled_from([-4, -1, 1, 2, 4, 8, 2**32, 2**64]))
        one["data_offsets"] = [n + by for n in one["data_offsets"]]
    return whole(json.dumps(tree, ensure_ascii=False).encode("utf-8", "replace"), data)


def parsed(body):
    """The header as an object, empty where it is none, and the data."""
    header, data = split(body)
    try:
        tree = json.loads(header)
    except (ValueError, RecursionError):
        tree = None
    return tree if isinstance(tree, dict) else {}, data


def pair_in(entry):
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    return isinstance(offsets, list) and all(isinstance(n, int) for n in offsets)


def disguise(draw, body):
    """A number written in another way."""
    number = draw(st.sampled_from([rb"[01]", rb"\d+"]))
    pattern = rb"(?<=[\[,])" + number + rb"(?=[\],])"
    return substitute(draw, body, pattern, lambda old: DISGUISES.get(old, PLAIN))


def repeat(draw, body):
    """A member of an object written twice."""
    member = rb'"[^"]*":("[^"]*"|{[^}]*})'
    return substitute(draw, body, member, lambda old: [b"%s,%s"])


def substitute(draw, body, pattern, ways_of):
    header, data = split(body)
    found = list(re.finditer(pattern, header))
    if not found:
        return body
    match = draw(st.sampled_from(found))
    new = draw(st.sampled_from(ways_of(match.group()))).replace(b"%s", match.group())
    return whole(header[: match.start()] + new + header[match.end() :], data)


PLAIN = [b"-%s", b"+%s", b"0%s", b"%s.0", b"%se0", b'"%s"']
DISGUISES = {b"0": [b"-0", b"false", b"0.0", b"null"], b"1": [b"true", b"1.0", b"1e0"]}
MUTATIONS = [disguise, repeat, flip, truncate, extend, claim, insert, edit, lie, move]


@st.composite
def hostile(draw):
    body = draw(st.sampled_from(SEEDS))
    for mutate in draw(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=3)):
        body = mutate(draw, body) if len(body) > 8 else body
    return body


def by_library(body):
    """Direction and extras as the library reads them, or None where it reads nothing."""
    try:
        entries = dict(safetensors.deserialize(body))
    except safetensors.SafetensorError:
        return None
    tensors = {}
    for name, entry in entries.items():
        if entry["dtype"] == "BF16":
            numbers = (np.frombuffer(entry["data"], "<u2").astype("<u4") << 16).view("<f4")
        else:
            numbers = np.frombuffer(entry["data"], WIDE[entry["dtype"]]).astype("<f4")
        tensors[name] = numbers.reshape(entry["shape"])
    beside = {name: tensors.pop(name) for name in list(tensors) if name.startswith("extra:")}
    return LAYOUT.join(tensors), beside


def unique(pairs):
    assert len(dict(pairs)) == len(pairs), "taken, though a name occurs twice"
    return dict(pairs)


WHOLE = r"0|[1-9]\d{0,14}"
FORMS = dict.fromkeys(["base_version", "local_steps", "samples"], WHOLE)
FORMS |= {"id": r"[!-~]{1,128}", "worker": r"[\w.@-]{1,64}"}
FORMS |= dict.fromkeys(["local_lr", "loss"], r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")


def agrees(body):
    """Ours refuses, or says the same as the library and as JSON."""
    try:
        found = wire.decode_update(body, LAYOUT, extras=EXTRAS, worker="ann")
    except MalformedUpdate as refusal:
        message = str(refusal)
        assert message.isascii()
        assert message.isprintable()
        assert len(message) < 600
        return False
    theirs = by_library(bytes(body))
    assert theirs is not None, "taken, though the library rejects it"
    update = found.update
    assert update.direction.tobytes() == theirs[0].tobytes()
    assert {f"extra:{n}": v.tobytes() for n, v in update.extras.items()} == {
        name: vector.tobytes() for name, vector in theirs[1].items()
    }
    metadata = json.loads(split(body)[0], object_pairs_hook=unique)["__metadata__"]
    for name, value in metadata.items():
        assert re.fullmatch(FORMS[name], value, re.ASCII)
    assert (update.worker, update.id) == ("ann", metadata["id"])
    assert update.base_version == int(metadata["base_version"])
    assert update.local_steps == int(metadata["local_steps"])
    assert update.local_lr == float(metadata["local_lr"])
    assert update.samples == int(metadata.get("samples", "0"))
    assert found.loss == (float(metadata["loss"]) if "loss" in metadata else None)
    return True


def test_the_seeds_are_good():
    assert all(agrees(body) for body in SEEDS)


@pytest.mark.slow
@fuzz
@given(hostile())
def test_a_mutated_body_is_read_as_the_library_reads_it_or_refused(body):
    agrees(body)


@fuzz
@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda text: whole(text, b"")))
def test_noise_is_refused(body):
    assert not agrees(body)


@settings(fuzz, max_examples=BODIES // 4)
@given(hostile())
def test_a_worker_survives_a_hostile_snapshot_too(body):
    with suppress(RunError):
        wire.decode_snapshot(body)


def padded(start, unit, end=b""):
    """A header as long as one may be, filled with one thing."""
    room = wire.most_body_bytes(LAYOUT, EXTRAS) - 8 - 4 * LAYOUT.dim * 2
    return whole(start + unit * ((room - len(start) - len(end)) // len(unit)) + end, b"")


LARGEST = {
    "open brackets": padded(b'{"a":', b"["),
    "open objects": padded(b"", b'{"a":'),
    "quotes": padded(b"{", b'"'),
    "escaped quotes": padded(b'{"', b'\\"'),
    "escapes": padded(b'{"a":"', b"\\u0000", b'"}'),
    "spaces": padded(b"{", b" ", b"}"),
    "one name many times": padded(b"{", b'"a":0,', b'"a":0}'),
    "zeros": padded(b'{"w":[', b"0,", b"0]}"),
    "digits": padded(b'{"w":', b"9", b"}"),
    "digits with an exponent": padded(b'{"w":1', b"0", b"e9}"),
    "digits in the metadata": padded(b'{"__metadata__":{"loss":"', b"9", b'"}}'),
    "new lines, then nonsense": padded(b"{", b"\n", b"x"),
    "wide characters": padded(b'{"a":"', "\U0001f600".encode(), b'"}'),
    "many names": whole(json.dumps({f"{i}": {"dtype": "F32"} for i in range(2500)}).encode(), b""),
    "many facts": whole(
        json.dumps({"__metadata__": {f"{i}": "" for i in range(5000)}}).encode(), b""
    ),
}


@pytest.mark.parametrize("name", LARGEST)
def test_the_worst_header_costs_little_time_and_memory(name):
    body = LARGEST[name]
    assert not agrees(body)  # and whatever is made once has been made
    start = time.perf_counter()
    assert not agrees(body)
    elapsed_s = time.perf_counter() - start
    tracemalloc.start()
    assert not agrees(body)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert elapsed_s < 0.5  # quadratic time would be minutes
    assert peak < 4 * 2**20
    assert kept < 256 * 2**10  # Python itself keeps some freed tuples


def test_refusals_leave_nothing_behind():
    bodies = [flipped(SEEDS[0], at) for at in range(8, 400)]
    for body in bodies:
        agrees(body)
    tracemalloc.start()
    for _ in range(5):
        for body in bodies:
            agrees(body)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 256 * 2**10  # Python itself keeps some freed tuples


def flipped(body, at):
    return body[:at] + bytes([body[at] ^ 4]) + body[at + 1 :]


def test_every_single_byte_of_a_header_may_be_wrong():
    for body in SEEDS:
        for at in range(len(body) - len(split(body)[1])):
            for wrong in (body[at] ^ 1, body[at] ^ 32, 0, 255, 0x22, 0x7D):
                agrees(body[:at] + bytes([wrong]) + body[at + 1 :])
