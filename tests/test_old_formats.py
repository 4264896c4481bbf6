"""Run directories and stores of format 1, written before settings were renamed, still work.

``run-afa-cs`` and ``run-scaffold`` were cut off after 12 of 30 rounds; beside them is the SHA-256
of the parameters that the uninterrupted run ended with. ``run.db`` is the store of a server that
was killed at version 4 with two updates waiting.
"""

from __future__ import annotations

import asyncio
import hashlib
import lzma
import shutil
from pathlib import Path

import numpy as np
import pytest

from anarchic import Update, simulate, wire
from anarchic.server.replay import replay
from anarchic.server.sql import open_store
from tests.server.live import serving, until

FORMAT_1 = Path(__file__).parent / "data" / "format-1"
TOKEN = (FORMAT_1 / "ann.token").read_text().strip()


@pytest.mark.parametrize("name", ["run-afa-cs", "run-scaffold"])
def test_a_run_directory_is_resumed_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / name
    shutil.copytree(FORMAT_1 / name, path)
    rounds: list[int] = []
    run = simulate(out=path, resume=True, watch=lambda progress: rounds.append(progress.round))
    expected = (FORMAT_1 / f"{name}.sha256").read_text().strip()
    assert hashlib.sha256(run.params.tobytes()).hexdigest() == expected
    assert rounds[0] > 1  # from the checkpoint, not from the start


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    path = tmp_path / "run.db"
    path.write_bytes(lzma.decompress((FORMAT_1 / "run.db.xz").read_bytes()))
    return path


def replayed(store_path: Path) -> tuple[int, bool]:
    store = open_store(store_path, keep_payloads=True)
    try:
        found = replay(store)
    finally:
        store.close()
    return found.version, found.equal


def test_a_store_is_replayed(store_path: Path) -> None:
    assert replayed(store_path) == (4, True)


def test_a_store_is_served_on(store_path: Path) -> None:
    async def scenario() -> None:
        async with serving(store_path, open_enrolment=False) as (service, client):
            assert service.published.newest.version == 4
            dim = service.layout.dim
            for number in range(2):  # two of the four that a step needs are waiting
                direction = np.full(dim, 0.01, np.float32)
                update = Update("ann", 4, 1, 0.1, direction, id=f"new-{number}")
                body = wire.encode_update(service.layout, update)
                headers = {"Authorization": f"Bearer {TOKEN}"}
                answer = await client.post("/v1/updates", content=body, headers=headers)
                assert answer.status_code == 202, answer.text
            await until(lambda: service.published.newest.version == 5)

    asyncio.run(scenario())
    assert replayed(store_path) == (5, True)
