"""Running the page's modules: in node, and in a browser that has loaded the page.

A piece of JavaScript is a function ``async (load, given) => ...``, where ``load("models.js")``
gives a module of the page and ``given`` is what the test passes as JSON.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources

import pytest

STATIC = resources.files("anarchic.page") / "static"
JOIN = STATIC / "join"

NODE = """
const load = (name) => import(`./${name}`);
let text = "";
for await (const chunk of process.stdin) text += chunk;
const found = await (%s)(load, JSON.parse(text));
console.log(JSON.stringify(found));
"""


def node(folder, files=JOIN):
    """A function that runs JavaScript in node, in a copy of a page's files."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("needs node: apt install nodejs")
    for path in files.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    (folder / "package.json").write_text('{"type": "module"}')

    def run(source, given=None):
        (folder / "main.js").write_text(NODE % source)
        done = subprocess.run(
            [program, "main.js"], input=json.dumps(given), cwd=folder,
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def browser(page):
    """The same in a page of Playwright's that shows /join."""

    def run(source, given=None):
        load = "(name) => import(new URL(`join/${name}`, location.href))"
        return page.evaluate(f"async (given) => await ({source})({load}, given)", given)

    return run
