"""Every block that is marked as runnable runs, in order: of pages for newcomers and tutorials."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.chaos.servers import free_port
from tests.docs import blocks

DOCS = blocks.ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
PAGES = [*(DOCS / f"{name}.md" for name in ("start", "live", "browser_worker")), *TUTORIALS]
WITH_BLOCKS = [page for page in PAGES if blocks.blocks(page.read_text(encoding="utf-8"))]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path):
    done = blocks.run(page.read_text(encoding="utf-8"), tmp_path, free_port())
    assert done.code == 0, done.output[-4000:]
    for line in promised(page.read_text(encoding="utf-8")):
        assert re.search(line, done.output), f"{page.name}: no {line!r} in\n{done.output[-4000:]}"


def promised(text: str) -> list[str]:
    """``<!-- prints: PATTERN -->`` on a page: what the blocks must have printed."""
    return re.findall(r"<!-- prints: (.*?) -->", text)


def test_every_tutorial_runs_something():
    assert {page.stem for page in PAGES} - {page.stem for page in WITH_BLOCKS} == {"index"}


def test_every_tutorial_is_listed():
    index = (DOCS / "tutorials" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\]\(([\w]+\.md)\)", index))
    assert listed == {page.name for page in TUTORIALS if page.stem != "index"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_says_whether_it_is_run(page: Path):
    kinds = set(re.findall(r"^```(\w+)", page.read_text(encoding="utf-8"), re.M))
    assert kinds <= {"bash", "python", "sh", "py", "js", "text"}


def test_a_block_that_fails_fails_its_page(tmp_path: Path):
    done = blocks.run("```bash\nfalse\n```\n```bash\ntouch here\n```\n", tmp_path, 1)
    assert done.code == 1
    assert not (tmp_path / "here").exists()
    done = blocks.run("```python\nraise SystemExit(3)\n```\n", tmp_path, 1)
    assert done.code == 3


def test_a_page_ends_what_it_left_in_the_background(tmp_path: Path):
    page = "```bash\n(sleep 600; touch late) & echo $! > pid\n```\n"
    assert blocks.run(page, tmp_path, 1).code == 0
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_a_titled_block_is_a_file_and_the_port_is_another(tmp_path: Path):
    page = '```python title="told.py"\nprint("http://127.0.0.1:8780")\n```\n'
    page += "```bash\npython told.py\n```\n```sh\nfalse\n```\n"
    assert blocks.run(page, tmp_path, 4321).output == "http://127.0.0.1:4321\n"
