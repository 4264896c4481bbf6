"""Pictures of the live page for the docs, of a real run, in real Chromium.

    python -m tests.browser.screenshots [--seconds 75]

It writes docs/live-light.png, docs/live-dark.png and docs/live-phone.png.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.conftest import ARGUMENTS, CHROMIUM
from tests.browser.crowd import serving

DOCS = Path(__file__).parents[2] / "docs"
MOST_BYTES = 200_000
WIDE, PHONE = {"width": 1280, "height": 1180}, {"width": 390, "height": 844}
BELOW = 14  # pixels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=75.0, help="that the run has gone on for")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder)) as (server, _),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport=WIDE, color_scheme="light")
        page.goto(server.page)
        page.wait_for_timeout(1000 * asked.seconds)
        take(page, "live-light.png", "Staleness, local steps and norms")
        page.emulate_media(color_scheme="dark")
        page.wait_for_timeout(1500)
        take(page, "live-dark.png", "Staleness, local steps and norms")
        page.set_viewport_size(PHONE)
        page.wait_for_timeout(1500)
        take(page, "live-phone.png", "Workers")
        browser.close()


def take(page, name: str, last: str) -> None:
    """A picture down to a section, with a palette: a third of the bytes that look the same."""
    from PIL import Image

    path = DOCS / name
    found = page.get_by_role("region", name=last, exact=True).bounding_box()
    size = {"width": page.viewport_size["width"], "height": found["y"] + found["height"] + BELOW}
    page.screenshot(path=path, full_page=True, clip={"x": 0, "y": 0, **size})
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    size = path.stat().st_size
    assert size < MOST_BYTES, f"{path} has {size} bytes"
    print(f"{path}: {size:,} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
