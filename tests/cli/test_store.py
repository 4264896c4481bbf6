"""``anarchic store``, as docs/operate.md shows it."""

from __future__ import annotations

import asyncio
import re
import shlex
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anarchic.cli.app import app
from anarchic.server.rollbacks import kept_versions
from tests.server.live import serving, stored, until
from tests.server.make import body

ROOT = Path(__file__).parents[2]


def section(title: str) -> str:
    page = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    return page.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_commands_of_the_page_run_as_they_stand_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = section("Months").split("```bash\n")[1].split("```")[0]
    lines = re.findall(r"^anarchic .*$", blocks, re.M)
    assert len(lines) == 4
    monkeypatch.chdir(tmp_path)

    async def train() -> None:
        async with serving("run.db", rules={"m": 1}, keep_payloads=False) as (service, client):
            for number in range(6):
                sent = body("ann", str(number), base_version=number, seed=number)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await until(lambda: service.published.newest.version == number + 1)  # noqa: B023

    asyncio.run(train())
    said = [CliRunner().invoke(app, shlex.split(line, comments=True)[1:]) for line in lines]
    assert [each.exit_code for each in said] == [0] * 4, [each.output for each in said]
    assert "Copied to monday.db" in said[0].output
    assert "Everything is as it was written." in said[1].output
    assert "Deleted 2 updates" in said[2].output
    assert "Nothing to do" in said[3].output
    with stored("run.db") as store:
        assert kept_versions(store) == list(range(7))
    shown = CliRunner().invoke(app, ["status", "run.db", "--json"])
    assert '"updates": 6' in shown.output  # counted before their rows were deleted


def test_an_old_store_is_refused_with_the_command(tmp_path: Path) -> None:
    with tarfile.open(ROOT / "tests" / "data" / "schemas.tar.xz") as archive:
        archive.extract("schema-3-plain.db", tmp_path, filter="data")
    path = tmp_path / "schema-3-plain.db"
    for words in (["status", path], ["log", path], ["pause", path]):
        found = CliRunner().invoke(app, [str(word) for word in words])
        assert found.exit_code == 1
        assert f"anarchic store upgrade {path}" in found.output
    found = CliRunner().invoke(app, ["store", "check", str(path)])
    assert found.exit_code == 2  # it is not damaged
    assert "Damaged" not in found.output
    assert "Nothing was looked at." in found.output
    assert f"anarchic store upgrade {path}" in found.output
    assert CliRunner().invoke(app, ["store", "upgrade", str(path)]).exit_code == 0
    assert CliRunner().invoke(app, ["store", "check", str(path)]).exit_code == 0
