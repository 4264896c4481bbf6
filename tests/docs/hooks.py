"""What MkDocs does besides: pages of other folders, the reference of every package, links.

The pages link to each other as they lie in the repository, so that they can be read there. Pages
and files outside ``docs`` become part of the site when something links to them, at the path that
they have in the repository.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import posixpath
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
CODE = re.compile(r"(^[ ]*```.*?^[ ]*```|`[^`\n]+`)", re.S | re.M)
ROW, SPAN = re.compile(r"^\|.*$", re.M), re.compile(r"`[^`\n]+`")
REFERENCE = "reference"
WORDS = "<!-- the table of architecture.md#words -->"
logging.getLogger("mkdocs.plugins.griffe").setLevel(logging.ERROR)  # types that it cannot resolve


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    _extend(config.nav, "names.md", [_reference_page(package) for package in packages()])
    _extend(config.nav, "reproduction.md", studies())
    return config


def _extend(nav: Any, page: str, more: list[str]) -> None:
    """Put pages that are listed nowhere by hand below the page that leads to them."""
    for entry in nav if isinstance(nav, list) else list(nav.values()):
        if isinstance(entry, dict) and page in entry.values():
            title = next(iter(entry))
            entry[title] = [page, *more]
        elif isinstance(entry, dict | list):
            _extend(entry, page, more)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for package in packages():
        text = reference(package)
        files.append(File.generated(config, _reference_page(package), content=text))
    found = [ROOT / "docs" / file.src_uri for file in files.documentation_pages()]
    known = {"CONTRIBUTING.md", "CHANGELOG.md"}
    waiting = [*known, *(name for page in found for name in outside(page))]
    known = set()
    while waiting:
        name = waiting.pop()
        if name not in known:
            known.add(name)
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
            waiting += outside(ROOT / name)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    markdown = ROW.sub(lambda row: SPAN.sub(unescaped, row[0]), markdown)
    markdown = markdown.replace(WORDS, words())
    here = repository_path(page.file.src_uri)
    return rewritten(markdown, lambda target: _in_site(here, target, page.file.src_uri))


def unescaped(span: re.Match[str]) -> str:
    """GitHub needs ``\\|`` in the code of a table; MkDocs would show the backslash."""
    return span[0].replace("\\|", "|")


def words() -> str:
    """The table of words, which stands on the page of the architecture and nowhere else."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("\n## Words\n")[2].partition("\n## ")[0]
    return "\n".join(row for row in section.splitlines() if row.startswith("|"))


def repository_path(uri: str) -> str:
    """Where the source of a page of the site lies."""
    inside = f"docs/{uri}"
    return inside if (ROOT / inside).exists() or uri.startswith(REFERENCE) else uri


def outside(page: Path) -> list[str]:
    """The files outside of ``docs`` that a page links to, by their paths in the repository."""
    if page.suffix != ".md" or not page.exists():
        return []
    targets: list[str] = []

    def note(target: str) -> str:
        name = _resolved(page.relative_to(ROOT).as_posix(), target)
        if name is not None and not name.startswith("docs/"):
            targets.append(name)
        return target

    rewritten(page.read_text(encoding="utf-8"), note)
    return targets


def rewritten(markdown: str, change: Callable[[str], str]) -> str:
    """The text with the target of every link changed, except in code."""
    parts = CODE.split(markdown)
    for i in range(0, len(parts), 2):
        parts[i] = LINK.sub(lambda found: found[1] + change(found[2]) + found[3], parts[i])
    return "".join(parts)


def _resolved(here: str, target: str) -> str | None:
    """The file of the repository that a link on the page ``here`` leads to, if there is one."""
    if "://" in target:
        return None
    name = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    if (ROOT / name).is_dir():
        name = f"{name}/README.md"
    return name if (ROOT / name).is_file() else None


def _in_site(here: str, target: str, uri: str) -> str:
    name = _resolved(here, target)
    if name is None:
        return target
    return posixpath.relpath(name.removeprefix("docs/"), posixpath.dirname(uri) or ".")


def packages() -> list[str]:
    from tests.public_names import packages as found

    return found()


def studies() -> list[str]:
    """The page of all experiments, and one for each."""
    folder = ROOT / "experiments"
    pages = [folder / "README.md", *sorted(folder.glob("*/README.md"))]
    return [page.relative_to(ROOT).as_posix() for page in pages]


def _reference_page(package: str) -> str:
    return f"{REFERENCE}/{package}.md"


def reference(package: str) -> str:
    """The page of a package: its docstring, and every public name."""
    from tests.public_names import names

    module = importlib.import_module(package)
    parts = [f"# {package}", (inspect.getdoc(module) or "").strip()]
    parts += [_entry(module, name) for name in names(package)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _entry(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if inspect.ismodule(value):
        page = value.__name__
        said = f"See [{page}]({page}.md)." if page in packages() else inspect.getdoc(value) or ""
        return f"## {name}\n\n{said}"
    place = getattr(value, "__module__", None)
    if place is not None and getattr(value, "__qualname__", None) == name:
        return f"::: {place}.{name}"
    return f"::: {_defined(module, name)}"


def _defined(module: ModuleType, name: str) -> str:
    """The module of this project that assigns a name: a constant or the name of a type."""
    for other in sorted(os.fspath(p) for p in (ROOT / "src" / "anarchic").rglob("*.py")):
        text = Path(other).read_text(encoding="utf-8")
        if re.search(rf"^(?:type )?{name}\b[^=\n]*=", text, re.M):
            path = Path(other).relative_to(ROOT / "src").with_suffix("")
            return ".".join(path.parts).removesuffix(".__init__") + f".{name}"
    raise LookupError(f"{module.__name__} lists {name}, and no module assigns it.")
