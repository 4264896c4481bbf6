"""The page ``/join``: a worker in the browser, on digits that stay there.

Its files are read once and known by name, so no path of a request reaches the disk.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import numpy as np

from anarchic.data.digits import load_counts
from anarchic.errors import ConfigError
from anarchic.page.assets import HEADERS

INDEX = "index.html"
DIGITS = "digits"
KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
SECURITY = {
    **HEADERS,
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
        "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page, as it is sent."""

    body: bytes
    kind: str  # its media type
    kept: bool = True  # a browser may keep it, and asks whether it has changed

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.body).hexdigest()[:20]}"'

    @property
    def headers(self) -> dict[str, str]:
        if not self.kept:
            return {**SECURITY, "cache-control": "no-store"}
        return {**SECURITY, "cache-control": "no-cache", "etag": self.etag}


@cache
def join_files() -> Mapping[str, PageFile]:
    """The files of the page by name, and the digits that it may train on."""
    folder = resources.files("anarchic.page") / "static" / "join"
    found = {
        file.name: PageFile(file.read_bytes(), KINDS[file.name.rpartition(".")[2]])
        for file in folder.iterdir()
        if file.is_file()
    }
    return {**found, DIGITS: PageFile(digit_bytes(), "application/octet-stream")}


def digit_bytes() -> bytes:
    """The embedded training digits in order of label, 65 bytes each: label, then 8x8 counts.

    Every n-th of them is a share with some digits of every class.
    """
    counts, labels, test = load_counts()
    order = np.argsort(labels, kind="stable")
    order = order[~test[order]]
    records = np.column_stack([labels[order], counts[order].reshape(len(order), -1)])
    return records.astype(np.uint8).tobytes()


@lru_cache(maxsize=16)
def qr_code(url: str) -> PageFile:
    """The address as a QR code in SVG; refused without the extra ``page``."""
    try:
        import segno
    except ModuleNotFoundError as error:
        raise ConfigError(
            "A QR code needs the package segno: pip install 'anarchic[page]'."
        ) from error
    out = io.BytesIO()
    made: Any = segno.make(url, error="m", micro=False)
    made.save(out, kind="svg", scale=8, dark="#000", light="#fff", svgclass=None, lineclass=None)
    return PageFile(out.getvalue(), KINDS["svg"], kept=False)
