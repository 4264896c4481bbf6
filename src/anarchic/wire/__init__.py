"""Records as bytes: the only room that knows the format, which is safetensors."""

from anarchic.wire.files import (
    decode_state,
    encode_state,
    load_model,
    load_tensors,
    read,
    save_model,
    write,
)
from anarchic.wire.messages import (
    Decoded,
    check_beginning,
    decode_snapshot,
    decode_update,
    encode_snapshot,
    encode_update,
    most_body_bytes,
    snapshot_facts,
)
from anarchic.wire.terms import buffers_metadata, buffers_of, terms_of

__all__ = [
    "Decoded",
    "buffers_metadata",
    "buffers_of",
    "check_beginning",
    "decode_snapshot",
    "decode_state",
    "decode_update",
    "encode_snapshot",
    "encode_state",
    "encode_update",
    "load_model",
    "load_tensors",
    "most_body_bytes",
    "read",
    "save_model",
    "snapshot_facts",
    "terms_of",
    "write",
]
