"""The terms of a run in the metadata of model files and snapshots: rule, server rate, buffers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from anarchic.core.reading import parse_json, shown
from anarchic.core.types import Terms
from anarchic.errors import MalformedUpdate
from anarchic.wire import strict

BUFFERS = "buffers"  # {"policy": "average", "names": [...]}
POLICIES = ("average", "local")


def metadata_of(terms: Terms) -> dict[str, str]:
    """Terms as metadata; what is not known, or has no form there, is left out."""
    known: dict[str, str] = {}
    if terms.rule is not None and strict.ID.fullmatch(terms.rule):
        known["rule"] = terms.rule
    if terms.server_lr is not None:
        known["server_lr"] = repr(float(terms.server_lr))
    if terms.buffers is not None:
        known |= buffers_metadata(terms.buffers, terms.buffer_names)
    return known


def buffers_metadata(policy: str, names: Iterable[str]) -> dict[str, str]:
    """What a file says of its buffers."""
    return {BUFFERS: json.dumps({"policy": policy, "names": sorted(names)})}


def terms_of(metadata: Mapping[str, str]) -> Terms:
    """The terms in metadata, of a file or of a snapshot."""
    policy, names = buffers_of(metadata)
    return Terms(
        rule=strict.text(metadata, "rule", strict.ID) if "rule" in metadata else None,
        server_lr=strict.number(metadata, "server_lr") if "server_lr" in metadata else None,
        buffers=policy,
        buffer_names=names,
    )


def buffers_of(metadata: Mapping[str, str]) -> tuple[str | None, tuple[str, ...]]:
    """The policy for buffers and their names; of a file that anybody may have written."""
    return _buffers(metadata[BUFFERS]) if BUFFERS in metadata else (None, ())


def check_names(buffers: Iterable[str], names: Iterable[str]) -> None:
    """Refuse buffers that are averaged and not there."""
    for name in set(buffers).difference(names):
        raise MalformedUpdate(
            f"The metadata {BUFFERS} names {shown(name)}, which the file does not hold."
        )


def averaged(terms: Terms) -> tuple[str, ...]:
    """The names of those tensors of the model that are buffers."""
    return terms.buffer_names if terms.buffers == "average" else ()


def _buffers(text: str) -> tuple[str, tuple[str, ...]]:
    try:
        found = parse_json(text)
    except ValueError:
        found = None
    if not (
        isinstance(found, dict)
        and found.get("policy") in POLICIES
        and isinstance(found.get("names"), list)
        and all(isinstance(name, str) for name in found["names"])
    ):
        raise MalformedUpdate(
            f"The metadata {BUFFERS} must be as "
            '{"policy": "average", "names": ["bn.running_mean"]} with a policy of '
            f"{' or '.join(POLICIES)}, found {shown(text)}."
        )
    return found["policy"], tuple(found["names"])
