"""The site builds without a warning, and every link of every page leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.blocks import ROOT

pytest.importorskip("material")
pytest.importorskip("mkdocstrings")

SITE = ROOT / ".site"
LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}
MEANT = {"canonical", "next", "prev"}  # links in a head that load nothing


class Page(HTMLParser):
    """What a page links to and loads, and the places that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = dict(attrs)
        self.places |= {has[name] for name in ("id", "name") if has.get(name)}  # type: ignore[arg-type]
        target = has.get(LOADED.get(tag, "href"))
        if target is None:
            return
        loads = tag in LOADED and (has.get("rel") not in MEANT)
        (self.loaded if loads else self.links).add(target)


@pytest.fixture(scope="module")
def site() -> dict[Path, Page]:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(SITE)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return {path: Page(path) for path in SITE.rglob("*.html")}


@pytest.mark.slow
def test_the_site_builds_and_every_link_leads_somewhere(site: dict[Path, Page]):
    assert len(site) > 50
    for path, page in site.items():
        if path.name != "404.html":  # its links begin at the root of a server
            for target in page.links | page.loaded:
                assert leads(site, path, target), f"{path.relative_to(SITE)}: {target}"


def leads(site: dict[Path, Page], path: Path, target: str) -> bool:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return parts.scheme in {"http", "https", "mailto"}
    file = path.parent / unquote(parts.path) if parts.path else path
    file = (file / "index.html" if file.is_dir() else file).resolve()
    if not file.exists():
        return False
    return (
        not parts.fragment or file.suffix != ".html" or place(parts.fragment) in site[file].places
    )


def place(fragment: str) -> str:
    return unquote(fragment)


@pytest.mark.slow
def test_a_page_loads_nothing_from_elsewhere(site: dict[Path, Page]):
    for path, page in site.items():
        foreign = {target for target in page.loaded if urlsplit(target).netloc}
        assert not foreign, f"{path.relative_to(SITE)} loads {foreign}"


@pytest.mark.slow
def test_every_public_name_has_its_place_in_the_reference(site: dict[Path, Page]):
    from tests.public_names import names, packages

    for package in packages():
        page = site[SITE / "reference" / f"{package}.html"]
        shown = {name.rpartition(".")[2] for name in page.places}
        assert set(names(package)) <= shown, set(names(package)) - shown


def test_every_page_of_the_navigation_is_there():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = re.findall(r"^ +- (?:.*: )?([\w/]+\.md)", text.partition("\nextra:")[0], re.M)
    absent = {page for page in pages if not (ROOT / "docs" / page).exists()}
    assert absent == {"CONTRIBUTING.md", "CHANGELOG.md"}  # of the folder above


def test_a_missing_place_is_seen(tmp_path: Path):
    path = tmp_path / "page.html"
    path.write_text('<h1 id="here">x</h1><a href="#here">y</a><a href="#there">z</a>')
    site = {path.resolve(): Page(path)}
    assert leads(site, path.resolve(), "#here")
    assert not leads(site, path.resolve(), "#there")
    assert not leads(site, path.resolve(), "other.html")
