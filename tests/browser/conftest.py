"""A real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
AXE = Path(__file__).parents[2] / ".browser" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """One for all tests; each opens pages of its own."""
    if CHROMIUM is None:
        pytest.skip("There is no chromium: apt install chromium")
    library = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is missing: pip install 'anarchic[browser]'"
    )
    with library.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield made
        made.close()


class Tab:
    """A page, and what went wrong in it."""

    def __init__(self, browser, **options) -> None:
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, **options}
        )
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))

    def _heard(self, message) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)


@pytest.fixture
def tabs(browser):
    """Opens tabs, and closes them at the end."""
    opened: list[Tab] = []

    def tab(**options) -> Tab:
        opened.append(Tab(browser, **options))
        return opened[-1]

    yield tab
    for each in opened:
        each.context.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core's script, which `make test-browser` installs."""
    if not AXE.exists():
        pytest.skip("axe-core is missing: make test-browser installs it where npm is")
    return AXE.read_text(encoding="utf-8")
