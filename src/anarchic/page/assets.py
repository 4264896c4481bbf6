"""The page's files, with the headers under which they are sent."""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
PLOTLY = "plotly.js"
# Elements that Plotly takes for style sheets which are there already. It would make them, which the
# policy forbids; page.css has the rules that its charts need.
_SHEET = re.compile(rb'if\(!document\.getElementById\("([0-9a-f]{64})"\)\)')
_STAND_IN = 'document.head.append(Object.assign(document.createElement("meta"),{id:"%s",%s}));'
NO_PLOTLY = "Plotly is not installed here: pip install 'anarchic[page]' on the server's machine."


class Asset(NamedTuple):
    """A file of the page."""

    body: bytes
    kind: str  # its media type
    etag: str
    encoding: str = ""  # of the body, where it is compressed

    @property
    def headers(self) -> dict[str, str]:
        """Asked again each time, and sent again only if it has changed."""
        encoded = {"content-encoding": self.encoding} if self.encoding else {}
        return {**HEADERS, **encoded, "etag": self.etag, "cache-control": "no-cache"}


def names() -> list[str]:
    """The files of the page."""
    folder = resources.files("anarchic.page") / "static"
    return sorted(f.name for f in folder.iterdir() if Path(f.name).suffix in TYPES)


@cache
def asset(name: str) -> Asset | None:
    """A file of the page by its name; None where there is none."""
    if name not in names():
        return None
    return _asset((resources.files("anarchic.page") / "static" / name).read_bytes(), name)


@cache
def plotly() -> Asset | None:
    """Plotly's script from the package ``plotly``, compressed; None where that is missing."""
    found = find_spec("plotly")
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(found.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    if not path.is_file():
        return None
    packed = gzip.compress(_without_sheets(path.read_bytes()), mtime=0)
    return _asset(packed, PLOTLY)._replace(encoding="gzip")


def _without_sheets(script: bytes) -> bytes:
    """Plotly's script, after a line that keeps it from making style sheets."""
    names = ["plotly.js-style-global", *(found.decode() for found in _SHEET.findall(script))]
    lines = (_STAND_IN % (name, 'className:"no-inline-styles"') for name in names)
    return "".join(lines).encode() + b"\n" + script


def _asset(body: bytes, name: str) -> Asset:
    kind = f"{TYPES[Path(name).suffix]}; charset=utf-8"
    return Asset(body, kind, f'"{hashlib.sha256(body).hexdigest()[:20]}"')
