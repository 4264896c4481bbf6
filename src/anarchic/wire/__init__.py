"""Records as bytes: the only room that knows the format, which is safetensors."""

from anarchic.wire.files import decode_state, encode_state, load_model, read, save_model, write
from anarchic.wire.messages import (
    Decoded,
    check_beginning,
    decode_snapshot,
    decode_update,
    encode_snapshot,
    encode_update,
    most_body_bytes,
    snapshot_facts,
    snapshot_metadata,
)

__all__ = [
    "Decoded",
    "check_beginning",
    "decode_snapshot",
    "decode_state",
    "decode_update",
    "encode_snapshot",
    "encode_state",
    "encode_update",
    "load_model",
    "most_body_bytes",
    "read",
    "save_model",
    "snapshot_facts",
    "snapshot_metadata",
    "write",
]
