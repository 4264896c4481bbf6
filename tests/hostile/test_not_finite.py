"""Updates with which a step overflows, against a real server that is killed afterwards."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from anarchic import Update, wire
from anarchic.server.replay import replay
from anarchic.server.store import open_store
from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line


def sent(worker, id, direction):
    """With a server's rate of 1e38: 1e-6 gives numbers of 1e31, 100 gives infinity."""
    update = Update(worker, 0, 1, 0.1, np.full(LAYOUT.dim, direction, np.float32), id=id)
    return wire.encode_update(LAYOUT, update, worker=worker)


def await_status(line, wanted):
    until = time.monotonic() + 20
    while not wanted(status := line.get("/v1/status").json()):
        assert time.monotonic() < until, status
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.tried(
    "updates with which every step overflows, and a kill",
    before="version 1 was infinity, with a RuntimeWarning in the log; no version after the restart",
    now="only finite versions, of the other updates; the log names what was set aside",
)
def test_every_published_version_is_finite(tmp_path):
    init, log = write_model(tmp_path / "model.safetensors"), tmp_path / "log"
    options = ("--open-enrolment", "--m", "2", "--server-lr", "1e38", "--keep-payloads")
    server = ServerProcess(str(tmp_path / "run.db"), init, log, *options)
    with server, Line(server.port) as line:
        for worker, direction in (("ann", 1e-6), ("eve", 100.0)):
            assert line.push(sent(worker, "1", direction)).status == 202
        await_status(line, lambda status: status["updates"]["set_aside"] == 1)
        assert line.get("/healthz").status == 503
        server.kill()
    with server, Line(server.port) as line:
        assert line.push(sent("eve", "1", 100.0)).status == 200  # it is known, and counts no more
        assert line.push(sent("bob", "1", 1e-6)).status == 202
        await_status(line, lambda status: status["version"] == 1)
        assert line.get("/healthz").status == 200
        _, snapshot, _ = wire.decode_snapshot(line.get("/v1/model").body)
        assert np.isfinite(snapshot.params).all()
        assert server.stop() == 0
    lines = [json.loads(text) for text in log.read_text().splitlines()]  # and nothing else
    [aside] = [line for line in lines if line["event"] == "set_aside"]
    assert [(update["worker"], update["id"]) for update in aside["updates"]] == [("eve", "1")]
    store = open_store(tmp_path / "run.db")
    try:
        assert replay(store).equal
    finally:
        store.close()
