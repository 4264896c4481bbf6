"""How much memory a server can take, whatever workers do: docs/durability.md has the formula."""

from __future__ import annotations

from anarchic.server.pending import QUEUED_BYTES
from anarchic.server.settings import Limits

PROCESS = 120 << 20  # Python, the libraries, threads
DATABASE = 64 << 20  # SQLite's page cache
CONNECTION = 32 << 10  # its protocol, timers and headers
BUFFER = 512 << 10  # that a connection may have beside the first piece of a body
MODELS = 12  # parameters, the rule's sum, the newest version, the next, and copies to be stored


def most_memory(model: int, limits: Limits) -> int:
    """Bytes of memory at most, for a model of so many bytes; a rule with rows needs those too."""
    return (
        PROCESS
        + DATABASE
        + model * (MODELS + limits.bodies + limits.versions)
        + max(2 * model, QUEUED_BYTES)  # accepted updates that wait to be folded
        + limits.waiting_bodies * (limits.first_piece + BUFFER)
        + limits.connections * CONNECTION
    )
