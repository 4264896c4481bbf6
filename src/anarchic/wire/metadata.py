"""The metadata of a message: strings that stand for names and numbers, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite

from anarchic.core.names import WORKER_NAME
from anarchic.errors import MalformedUpdate
from anarchic.wire.strict import shown

ID = re.compile(r"[!-~]{1,128}")
_IN_WORDS = {
    ID: "1 to 128 printable ASCII characters without spaces",
    WORKER_NAME: "1 to 64 of the characters A-Z a-z 0-9 _ . @ -",
}
_WHOLE = re.compile(r"0|[1-9][0-9]{0,14}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")  # as in JSON
_MOST_NUMBER = 64  # characters


def text(metadata: Mapping[str, str], name: str, pattern: re.Pattern[str]) -> str:
    found = metadata.get(name, "")
    if not pattern.fullmatch(found):
        raise MalformedUpdate(
            f"{name!r} in the metadata must be {_IN_WORDS[pattern]}, found {shown(found)}."
        )
    return found


def whole_number(metadata: Mapping[str, str], name: str) -> int:
    found = metadata.get(name, "")
    if not _WHOLE.fullmatch(found):
        raise MalformedUpdate(
            f"{name!r} in the metadata must be a whole number of at most 15 digits, found "
            f"{shown(found)}: write decimal digits and nothing else."
        )
    return int(found)


def number(metadata: Mapping[str, str], name: str) -> float:
    found = metadata.get(name, "")
    fits = len(found) <= _MOST_NUMBER and _NUMBER.fullmatch(found)
    value = float(found) if fits else float("nan")
    if not isfinite(value):
        raise MalformedUpdate(
            f"{name!r} in the metadata must be a finite number, found {shown(found)}: write it as "
            "in JSON, such as 0.05 or 1e-3."
        )
    return value
