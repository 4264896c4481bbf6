"""The Python that the pages show runs, block after block, as a reader would type it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
DOCS = Path(__file__).parents[1] / "docs"
MNIST = os.path.isdir(os.path.join(os.environ.get("ANARCHIC_DATA", ""), "mnist"))
NEEDS = {  # what a page takes as given
    "participation.md": """
from dataclasses import dataclass
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
""",
    "data.md": """
import numpy as np
from torch import nn
site = np.arange(16) % 8
x_train = x_test = np.ones((16, 2), np.float32)
y_train = y_test = np.arange(16) % 2
module = nn.Linear(2, 2)
""",
}
LIVE = {"workers.md"}  # a server's address: there the names alone are looked for


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)


PAGES = [page for page in sorted(DOCS.glob("*.md")) if blocks(page)]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    if page.name == "data.md" and not MNIST:
        pytest.skip("needs MNIST: set ANARCHIC_DATA to a folder that holds it")
    monkeypatch.chdir(tmp_path)
    windows = "".join(f"{worker},{worker},1e9\n" for worker in range(1000))
    Path("trace.csv").write_text(f"worker,from_s,until_s\n{windows}")
    names: dict[str, object] = {}
    for shown in (NEEDS.get(page.name, ""), *blocks(page)):
        if page.name in LIVE:
            shown = "\n".join(re.findall(r"^(?:from|import) .*$", shown, re.M))
        exec(compile(shown, page.name, "exec"), names)


def test_the_pages_that_show_python_are_seen():
    assert {"rules.md", "commands.md", "participation.md", "workers.md"} <= {p.name for p in PAGES}
