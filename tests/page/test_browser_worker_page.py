"""docs/browser_worker.md: its example runs, and its list of files is complete."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from anarchic import wire
from anarchic.worker import digits_task
from tests.chaos.servers import ServerProcess
from tests.page.javascript import JOIN

PAGE = (Path(__file__).parents[2] / "docs" / "browser_worker.md").read_text(encoding="utf-8")


def test_every_script_is_listed():
    listed = re.findall(r"`(\w+\.js)`", re.search(r"\| file \|.*?\n\n", PAGE, re.S)[0])
    assert sorted(listed) == sorted(path.name for path in JOIN.iterdir() if path.suffix == ".js")


@pytest.mark.slow
def test_the_visit_in_node_is_accepted(tmp_path):
    program = shutil.which("node")
    if program is None:
        pytest.skip("needs node: apt install nodejs")
    scripts, layout = tmp_path / "scripts", digits_task("digits:1/5").layout
    shutil.copytree(JOIN, scripts)
    (scripts / "package.json").write_text('{"type": "module"}')
    model = tmp_path / "model.safetensors"
    wire.save_model(model, layout, np.zeros(layout.dim, np.float32))
    words = ("--m", "2", "--open-enrolment")
    with ServerProcess(f"{tmp_path}/run.db", model, tmp_path / "log", *words) as server:
        source = re.search(r"```js\n(.*?)```", PAGE, re.S)[1]
        source = source.replace("8780", str(server.port)).replace(
            "await answer.json()", "JSON.stringify(await answer.json())"
        )
        (scripts / "visit.mjs").write_text(source)
        done = subprocess.run(
            [program, "visit.mjs"], cwd=scripts, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"status": "accepted", "version": 0, "buffered": 1}
