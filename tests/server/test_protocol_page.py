"""docs/protocol.md names every code that the server answers with, and every fact of its status."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path

from anarchic.server import refusals
from tests.server.live import serving

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")


def refused_with():
    """(status, code) of every refusal that the source spells out."""
    for path in (ROOT / "src" / "anarchic" / "server").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Refusal":
                match node.args[:2]:
                    case [ast.Constant(int(status)), ast.Constant(str(code))]:
                        yield status, code
    yield from ((status, code) for _, status, code, *_ in refusals._TABLE)


def test_the_page_lists_every_code_of_a_refusal_and_no_other():
    listed = re.findall(r"^\| (\d{3}) \| `(\w+)` \|", PAGE, re.M)
    assert len(listed) == len(set(listed))
    assert {(int(status), code) for status, code in listed} == set(refused_with())


def test_the_page_names_every_fact_of_the_status(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db") as (_, client):
            return (await client.get("/v1/status")).json()

    (row,) = re.findall(r"^\| `GET /v1/status` \|.*$", PAGE, re.M)
    status = asyncio.run(scenario())
    assert [name for name in (*status, *status["updates"]) if f"`{name}`" not in row] == []
