"""Small files and messages, written by the library and by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save

from anarchic import Layout, Update, wire
from anarchic.errors import MalformedUpdate


def header(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def order_in(path):
    entries = {name: e for name, e in header(path)[0].items() if name != "__metadata__"}
    return tuple(sorted(entries, key=lambda name: entries[name]["data_offsets"]))


def permuted(path, tensors):
    """A file with float32 tensors in the order given, as safetensors itself never writes them."""
    entries, body = {}, b""
    for name, tensor in tensors.items():
        data = tensor.astype("<f4").tobytes()
        offsets = [len(body), len(body) + len(data)]
        entries[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": offsets}
        body += data
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


LAYOUT = Layout.of({"w": ((2, 3), "F32"), "b": ((2,), "F32"), "scale": ((), "F32")})


def ramp(factor=1.0):
    return np.linspace(-1, 1, LAYOUT.dim, dtype=np.float32) * np.float32(factor)


FACTS = {"id": "u-1", "base_version": "3", "local_steps": "5", "local_lr": "0.05"}


def an_update(**changes):
    update = Update("ann", 3, 5, 0.05, ramp(), samples=640, id="u-1")
    return replace(update, **changes)


def by_library(facts=FACTS, dtype=np.float32, **tensors):
    tensors = tensors or LAYOUT.split(ramp())
    return save({n: np.asarray(t).astype(dtype) for n, t in tensors.items()}, metadata=facts)


def by_hand(entries, data=b""):
    """A file with a header of one's own; a dict is written as JSON."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + data


def entries(**changes):
    """The header of a good file, for ``by_hand(..., ramp().tobytes())``."""
    found = {"__metadata__": FACTS}
    for name, where in LAYOUT.slices.items():
        shape = list(LAYOUT.split(ramp())[name].shape)
        offsets = [4 * where.start, 4 * where.stop]
        found[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
    return found | changes


def decode(body, **more):
    return wire.decode_update(body, LAYOUT, **({"worker": "ann"} | more))


def refused(body, match, **more):
    with pytest.raises(MalformedUpdate, match=match) as caught:
        decode(body, **more)
    message = str(caught.value)
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 600
