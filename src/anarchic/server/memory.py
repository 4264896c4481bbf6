"""How much memory a server can take, whatever workers do: docs/durability.md has the formula."""

from __future__ import annotations

import os

from anarchic.core.findings import Doubt
from anarchic.server.collect import GROUP_BYTES
from anarchic.server.pending import QUEUED_BYTES
from anarchic.server.sending import READERS_BYTES, VERSIONS_BYTES
from anarchic.server.settings import Limits

PROCESS = 120 << 20  # Python, the libraries, threads
DATABASE = 64 << 20  # SQLite's page cache
CONNECTION = 32 << 10  # its protocol, timers and headers
BUFFER = 512 << 10  # that a connection may have beside the first piece of a body
MODELS = 12  # parameters, the rule's sum, the newest version, the next, and copies to be stored


def most_memory(model: int, limits: Limits) -> int:
    """Bytes of memory at most, for a model of ``model`` bytes; a rule with rows needs those too."""
    return (
        PROCESS
        + DATABASE
        + model * (MODELS + limits.bodies)
        + max(model * limits.versions, VERSIONS_BYTES)  # being sent
        + READERS_BYTES
        + max(2 * model, QUEUED_BYTES)  # accepted updates that wait to be folded
        + max(model, GROUP_BYTES)  # those that were just written
        + limits.waiting_bodies * (limits.first_piece + BUFFER)
        + limits.connections * CONNECTION
    )


def check_room(model: int, limits: Limits) -> str:
    """What a server takes at most; a doubt where this machine has less."""
    most, has = most_memory(model, limits), _of_machine()
    told = f"A server takes at most {most / 1e6:,.0f} MB, and what its rule keeps of each worker"
    if has is not None and most > has:
        raise Doubt(
            f"{told}; this machine has {has / 1e6:,.0f} MB: add memory, or set smaller limits, "
            "such as bodies and versions of Limits in Python."
        )
    return f"{told}."


def _of_machine() -> int | None:
    """Bytes of memory, where the system says it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
