"""How long a stranger needs for a curve that moves, and for a model of one's own.

    python -m tests.browser.stranger [--clone FOLDER|URL] [--python PYTHON] [--own]

It clones into a new folder, runs ``make demo`` there as the README says, opens the address that it
prints in a real Chromium, and waits until the curve of accuracy has moved. With ``--own`` it then
follows docs/start.md and the tutorial on a model of one's own, in a new environment. It installs
packages, so it needs a network, and a machine that does nothing else. It exits with 1 if one of
them takes longer than it may.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import ARGUMENTS, CHROMIUM
from tests.chaos.servers import free_port
from tests.docs import blocks

ROOT = Path(__file__).parents[2]
CURVE_S, OWN_S = 180.0, 600.0  # at most
PATIENCE_S = 900.0
ADDRESS = re.compile(r"Watch it at (http://\S+/)")
OWN = {
    "docs/start.md": "server,plots",
    "docs/tutorials/own_model.md": "torch,plots",
}  # page: extras


class Watch:
    """Says what was done and when."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def says(self, what: str) -> float:
        passed = time.monotonic() - self._begun
        print(f"{passed:7.1f} s  {what}", flush=True)  # noqa: T201
        return passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clone", default=str(ROOT), help="what is cloned")
    parser.add_argument("--python", default=sys.executable, help="what makes the environment")
    parser.add_argument("--own", action="store_true", help="train a model of one's own too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place, watch = Path(folder) / "anarchic", Watch()
        subprocess.run(["git", "clone", "--quiet", asked.clone, str(place)], check=True)
        watch.says("cloned")
        slow = [("a curve that moves", moving(place, asked.python, watch), CURVE_S)]
        if asked.own:
            slow.append(("a model of one's own", own(place, asked.python), OWN_S))
    failed = [
        f"{what} took {took:.0f} s, at most {most:.0f}" for what, took, most in slow if took > most
    ]
    raise SystemExit("; ".join(failed) or 0)


def moving(place: Path, python: str, watch: Watch) -> float:
    """``make demo``, until accuracy has moved on its page."""
    with Demo(place, python) as demo, sync_playwright() as playwright:
        address = demo.address()
        watch.says(f"make demo serves {address}")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page()
        page.goto(address)
        first = curve(page)
        watch.says("the page shows a curve")
        while curve(page) == first:
            page.wait_for_timeout(100)
        took = watch.says("the curve has moved")
        browser.close()
    return took


def curve(page: Page) -> str:
    chart = page.get_by_role("img", name=re.compile("^accuracy"))
    drawn = chart.locator("path.line").first.get_attribute("d", timeout=1000 * PATIENCE_S)
    return drawn or ""


class Demo:
    """``make demo`` in a clone; all that it started ends with it."""

    def __init__(self, place: Path, python: str) -> None:
        self._log = place / "demo.log"
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                ["make", "demo", f"PYTHON={python}"],
                cwd=place, env=plain(), stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Demo:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()

    def address(self) -> str:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self._process.poll() is None:
            if found := ADDRESS.search(self._log.read_text(errors="replace")):
                return found[1]
            time.sleep(0.1)
        raise SystemExit(f"make demo named no page:\n{self._log.read_text(errors='replace')}")


def own(place: Path, python: str) -> float:
    """Install as the start page says, and run its blocks and those of the tutorial."""
    watch = Watch()
    programs = place / "own" / "bin"
    env = {**plain(), "PATH": f"{programs}:{os.environ['PATH']}", "BROWSER": "true"}
    subprocess.run([python, "-m", "venv", str(place / "own")], check=True)
    took = 0.0
    for name, extras in OWN.items():
        install = [programs / "pip", "install", "--quiet", "-c", "constraints.txt", f".[{extras}]"]
        subprocess.run(install, cwd=place, env=env, check=True)
        watch.says(f"installed the extras {extras}")
        script = blocks.script((place / name).read_text(encoding="utf-8"), free_port())
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                ["bash", "-c", script], cwd=folder, env=env, capture_output=True, text=True
            )
        if done.returncode:
            raise SystemExit(f"{name}:\n{done.stdout}{done.stderr}")
        took = watch.says(f"{name} is done")
    return took


def plain() -> dict[str, str]:
    """The environment without what belongs to development."""
    left_out = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    return {name: text for name, text in os.environ.items() if name not in left_out}


if __name__ == "__main__":
    main()
