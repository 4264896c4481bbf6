"""Usage shown in a docstring (``>>> ...``) becomes a block of code on the page of its name."""

from __future__ import annotations

import re
from typing import Any

import griffe

SESSION = re.compile(r"(?:^|(?<=\n))([ ]*)>>> .*(?:\n(?!\s*\n).*)*")


class Doctests(griffe.Extension):  # type: ignore[misc]
    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Every run of lines that begins with ``>>>`` in a fence of its own."""
    return SESSION.sub(lambda found: f"\n```pycon\n{found[0]}\n```", text)
