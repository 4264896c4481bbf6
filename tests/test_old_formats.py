"""Run directories and stores of format 1, written before settings were renamed, still work.

``run-afa-cs`` and ``run-scaffold`` were cut off after 12 of 30 rounds; beside them is the SHA-256
of the parameters that the uninterrupted run ended with, and ``ENDS`` holds those parameters:
another processor's BLAS adds in another order, so its last bits differ. ``run.db`` is the store of
a server that was killed at version 4 with two updates waiting.
"""

from __future__ import annotations

import asyncio
import hashlib
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anarchic import Settings, Update, build, simulate, wire
from anarchic.errors import RunError
from anarchic.server.migrations import upgrade_store
from anarchic.server.replay import replay
from anarchic.server.store import open_store
from anarchic.sim.record import RunDirectory
from tests.server.live import serving, until

ARCHIVE = Path(__file__).parent / "data" / "format-1.tar.xz"
ENDS = ARCHIVE.with_name("format-1-ends.npz")


@pytest.fixture
def format_1(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    upgrade_store(tmp_path / "format-1" / "run.db", backup=False)
    return tmp_path / "format-1"


@pytest.mark.parametrize("name", ["run-afa-cs", "run-scaffold"])
def test_a_run_directory_is_resumed_to_the_same_end(name: str, format_1: Path) -> None:
    rounds: list[int] = []
    path = format_1 / name
    run = simulate(out=path, resume=True, watch=lambda progress: rounds.append(progress.round))
    expected = np.load(ENDS)[name]
    digest = (format_1 / f"{name}.sha256").read_text().strip()
    assert hashlib.sha256(expected.tobytes()).hexdigest() == digest
    np.testing.assert_allclose(run.params, expected, rtol=0, atol=2e-7)  # the largest is 0.3
    assert rounds[0] > 1  # from the checkpoint, not from the start


def test_another_run_is_refused(format_1: Path) -> None:
    settings = Settings.from_record(RunDirectory(format_1 / "run-afa-cs").settings())
    for other in ({"local_lr": 0.2}, {"seed": 1}, {"clip": None}, {"server_lr": 0.5}):
        experiment = replace(build(replace(settings, **other)), about={})
        with pytest.raises(RunError, match="holds another run"):
            simulate(experiment, out=format_1 / "run-afa-cs", resume=True)


def replayed(store_path: Path) -> tuple[int, bool]:
    store = open_store(store_path, keep_payloads=True)
    try:
        found = replay(store)
    finally:
        store.close()
    return found.version, found.equal


def test_a_store_is_replayed(format_1: Path) -> None:
    assert replayed(format_1 / "run.db") == (4, True)


def test_a_store_is_served_on(format_1: Path) -> None:
    store_path = format_1 / "run.db"
    token = (format_1 / "ann.token").read_text().strip()

    async def scenario() -> None:
        async with serving(store_path, open_enrolment=False) as (service, client):
            assert service.published.newest.version == 4
            dim = service.layout.dim
            for number in range(2):  # two of the four that a step needs are waiting
                direction = np.full(dim, 0.01, np.float32)
                update = Update("ann", 4, 1, 0.1, direction, id=f"new-{number}")
                body = wire.encode_update(service.layout, update)
                headers = {"Authorization": f"Bearer {token}"}
                answer = await client.post("/v1/updates", content=body, headers=headers)
                assert answer.status_code == 202, answer.text
            await until(lambda: service.published.newest.version == 5)

    asyncio.run(scenario())
    assert replayed(store_path) == (5, True)
