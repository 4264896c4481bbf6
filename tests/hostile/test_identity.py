"""A run that is restored from a backup makes its later versions anew: nobody may mix them up."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import pytest

from anarchic import wire
from anarchic.errors import WorkerError
from anarchic.server.published import PublishedModels
from anarchic.server.records import epoch_of
from anarchic.server.store import open_store
from anarchic.worker import Worker
from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line
from tests.chaos.updates import encoded
from tests.server.live import serving
from tests.server.live import until as reached
from tests.server.make import LAYOUT as SMALL
from tests.server.make import begun, body, update
from tests.waiting import until

DIRECTION = np.ones(LAYOUT.dim, np.float32)


def go_to_version(server: ServerProcess, version: int, worker: str) -> None:
    with Line(server.port) as line:
        assert line.push(encoded(LAYOUT, worker, f"{version}")).status == 202
    until(lambda: server.status()["version"] == version)


@pytest.mark.slow
@pytest.mark.tried(
    "a run restored from a backup, which then made other updates into a version of the same number",
    before="a conditional GET gave 304 for other bytes, a URL marked immutable changed, and an "
    "update that started from the lost version was accepted",
    now="the ETag differs, only a URL with the epoch is immutable, such an update is refused (409)",
)
def test_a_restored_run_is_not_taken_for_the_lost_one(tmp_path: Path) -> None:
    path, backup = tmp_path / "run.db", tmp_path / "backup.db"
    init = write_model(tmp_path / "model.safetensors")
    server = ServerProcess(str(path), init, tmp_path / "log", "--open-enrolment", "--m", "1")
    worker = Worker(f"http://127.0.0.1:{server.port}", name="sdk")
    with server:
        go_to_version(server, 1, "ann")
        server.stop()
    shutil.copy(path, backup)
    with server:
        go_to_version(server, 2, "bob")
        with Line(server.port) as line:
            lost = line.get("/v1/model")
        assert worker.pull().version == 2
    shutil.copy(backup, path)
    with server:
        go_to_version(server, 2, "cleo")
        with Line(server.port) as line:
            found = line.get("/v1/model", f"If-None-Match: {lost.headers['etag']}")
            assert found.status == 200
            assert found.body != lost.body
            assert found.headers["etag"] != lost.headers["etag"]
            same = line.get("/v1/model", f"If-None-Match: {found.headers['etag']}")
            assert same.status == 304
            page = line.get(f"/v1/runs/{server.status()['run']}/models/2")
            assert page.body == found.body
            assert "immutable" not in page.headers["cache-control"]
        with pytest.raises(WorkerError, match="the run was restored") as refused:
            worker.push(DIRECTION, local_lr=0.1)
        assert refused.value.code == "unknown_version"
        assert worker.pull().version == 2
        assert worker.push(DIRECTION, local_lr=0.1).status == "accepted"
        with Line(server.port) as line:  # a worker that knows nothing of epochs
            older = encoded(LAYOUT, "dan", "1", base_version=1)
            assert line.push(older).status == 202
    worker.close()


def test_a_restart_is_no_other_identity(tmp_path: Path) -> None:
    """What was pulled before it is still known, and what started from it is accepted."""

    async def push(client: httpx.AsyncClient, id: str, epoch: str | None) -> int:
        made = update("ann", id, base_version=1)
        sent = wire.encode_update(SMALL, made, worker="ann", epoch=epoch)
        answer = await client.post("/v1/updates", content=sent)
        return answer.status_code

    async def scenario() -> None:
        tags, epochs = [], []
        for visit in range(3):
            async with serving(tmp_path / "run.db", rules={"m": 1}) as (service, client):
                if visit == 0:
                    await client.post("/v1/updates", content=body("ann", "0"))
                until_version = visit + (visit == 0)
                await reached(lambda n=until_version: service.published.newest.version == n)
                path = f"/v1/runs/{service.run}/models/1"
                tags.append((await client.get(path)).headers["etag"])
                epochs.append(service.published.newest.epoch)
                if visit:
                    assert await push(client, f"{visit}", epochs[0]) == 202
                    await reached(lambda n=visit: service.published.newest.version == n + 1)
                    assert service.published.newest.epoch not in epochs
                    assert await push(client, "wrong", service.published.newest.epoch) == 409
        assert len(set(tags)) == 1

    asyncio.run(scenario())


def test_a_replica_notices_that_the_database_was_restored(tmp_path: Path) -> None:
    """It follows: another server leads, and published a version of the same number."""
    path, backup = tmp_path / "run.db", tmp_path / "backup.db"
    with closing(open_store(path)) as store:
        run = begun(store, m=1).settings["run"]

    async def next_version(worker: str) -> None:
        async with serving(path) as (service, client):
            version = service.published.newest.version
            await client.post("/v1/updates", content=body(worker, "1", seed=len(worker)))
            await reached(lambda: service.published.newest.version == version + 1)

    shutil.copy(path, backup)
    asyncio.run(next_version("lost"))
    with closing(open_store(path)) as store:
        follower = PublishedModels(run, store)
        follower.follow(1, again=False)
        lost, epochs = follower.newest, follower.epochs
        assert epoch_of(epochs, 1) == lost.epoch
    shutil.copy(backup, path)
    asyncio.run(next_version("other"))
    with closing(open_store(path)) as store:
        follower._store = store
        follower.follow(1, again=False)
        assert follower.newest is lost  # nothing hints at it
        follower.follow(1, again=True)  # as after any failure of the store
        assert follower.newest.etag != lost.etag
        assert follower.newest.body == store.model(1)
        assert epoch_of(follower.epochs, 1) == follower.newest.epoch
        assert follower.epochs != epochs
