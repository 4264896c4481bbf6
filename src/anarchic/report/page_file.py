"""A report as one HTML file that opens from disk: the live page's modules, with the data inside."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from anarchic.errors import ConfigError
from anarchic.page.assets import asset
from anarchic.page.numbers import encoded
from anarchic.report.picture import picture
from anarchic.report.runs import compare_runs, read_runs

# In the order in which one needs the other; a report has no server to follow.
MODULES = ("dom.js", "chart.js", "strip.js", "render.js", "colours.js", "report.js")
MOST_RUNS = 40
_IMPORT = re.compile(r'^import [^;]*? from "\./[a-z]+\.js";\n', re.M)
_EXPORT = re.compile(r"^export (?=(async )?(function|const|let|class)\b)", re.M)

TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1><span class="mark" aria-hidden="true"></span>anarchic <span id="name">{title}</span></h1>
<nav id="actions" aria-label="Actions"></nav>
</header>
<main id="report"></main>
<noscript><p class="note">This report draws its charts with JavaScript.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def write_page(places: Sequence[str | os.PathLike[str]], path: str | os.PathLike[str]) -> Path:
    """Write the report of one or more recorded runs, in directories or stores, to ``path``."""
    path = Path(path)
    text = page_of(places)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"Cannot write {path}: {error.strerror or error}. Choose another path."
        ) from error
    return path


def page_of(places: Sequence[str | os.PathLike[str]]) -> str:
    """The report as text."""
    data = data_of(places)
    script, style = inlined(), text_of("page.css")
    title = ", ".join(run["name"] for run in data["runs"])[:120]
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return TEMPLATE.format(
        policy=policy, title=escape(f"report: {title}"), style=style, script=script,
        # No text in the data can end the element that it is in.
        data=encoded(data).replace("<", "\\u003c"),
    )  # fmt: skip


def data_of(places: Sequence[str | os.PathLike[str]]) -> dict[str, Any]:
    """What the report shows: a picture of each run, and rows that compare them."""
    if not 1 <= len(places) <= MOST_RUNS:
        raise ConfigError(f"A report is of 1 to {MOST_RUNS} runs, got {len(places)}.")
    read = read_runs(places)
    runs = [
        {"name": run.name, "picture": picture(place)}
        for run, place in zip(read, places, strict=True)
    ]
    return {"runs": runs, "rows": [asdict(row) for row in compare_runs(read)]}


def inlined() -> str:
    """The page's modules as one: what they import from each other stands before them."""
    parts = [_EXPORT.sub("", _IMPORT.sub("", text_of(name))) for name in MODULES]
    return "\n".join(parts)


def text_of(name: str) -> str:
    found = asset(name)
    assert found is not None, f"{name} is one of the page's files"
    return found.body.decode()


def _digest(text: str) -> str:
    """What a content policy calls the only script, or style, that it allows."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
