"""``docs/findings.md``: what was found, in prose with numbers that are made of the raw results.

The prose is ``experiments/notes.md``. In it ``[[table-1: a claim]]`` stands for the number that the
claim of this text measured, or for a fact of the experiment of this name, and ``[[table-1 rests on:
a claim]]`` for the seeds and the precision behind it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from anarchic.errors import ConfigError
from anarchic.study import find
from anarchic.study.findings import Findings
from anarchic.study.overview import overview_path, read_all
from anarchic.study.study import Study
from anarchic.study.tables import NOT_RUN, fixed

PLACE = re.compile(r"\[\[([\w-]+)( rests on)?:\s([^\]]+)\]\]")
WIDTH = 110  # of a line
HEAD = (
    "<!-- Made by anarchic reproduce all --report from experiments/notes.md and the raw results. "
    "Do not edit. -->"
)


def write_findings(studies: Sequence[Study]) -> Path | None:
    """Write the page; None where the prose is not at hand."""
    prose = find.folder() / "notes.md"
    if not prose.exists():
        return None
    path = overview_path().with_name("findings.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(findings_text(prose.read_text(encoding="utf-8"), studies), encoding="utf-8")
    return path


def findings_text(prose: str, studies: Sequence[Study]) -> str:
    """The prose with its numbers."""
    known = {study.name: (study, findings) for study, findings in read_all(studies)}

    def fill(place: re.Match[str]) -> str:
        name, basis, what = place[1], place[2], " ".join(place[3].split())
        if name not in known:
            raise ConfigError(f"There is no experiment {name!r}, found in {place[0]!r}.")
        return number(*known[name], what, basis=bool(basis))

    return f"{HEAD}\n\n{wrapped(PLACE.sub(fill, prose))}"


def wrapped(text: str) -> str:
    """The paragraphs and list items of a text in lines of equal length."""
    blocks = re.split(r"\n\n", text.strip())
    return "\n\n".join("\n".join(map(_filled, re.split(r"\n(?=- )", b))) for b in blocks) + "\n"


def _filled(part: str) -> str:
    if part.startswith("#"):
        return part
    indent = "  " if part.startswith("- ") else ""
    words = " ".join(part.split())
    wrap = textwrap.TextWrapper(WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    wrap.break_long_words = False
    return wrap.fill(words)


def number(study: Study, findings: Findings, what: str, *, basis: bool = False) -> str:
    """What a claim measured, or what its number rests on, or a fact."""
    if what in study.facts and not basis:
        return study.facts[what](findings) or NOT_RUN
    claims = [claim for claim in study.claims if claim.text == what]
    if len(claims) != 1:
        raise ConfigError(
            f"{len(claims)} claims of {study.name} have the text {what!r}, not one; its facts are "
            f"{', '.join(study.facts) or 'none'}. Take the text from its page."
        )
    if basis:
        return findings.where(**claims[0].of).basis
    return fixed(claims[0].measured(findings), 4) or NOT_RUN
