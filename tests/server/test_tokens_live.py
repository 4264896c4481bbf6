"""Tokens of a real server: a worker that waits for a new one, kill and restart."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from anarchic.errors import WorkerError
from anarchic.server.tokens import add_token, list_tokens, rotate_token
from anarchic.worker import Connection, Retry, Worker
from tests.chaos.servers import ServerProcess, write_model
from tests.chaos.talk import Line
from tests.waiting import until

pytestmark = pytest.mark.slow


def told(answer):
    return answer.status, answer.json().get("error")


def test_a_worker_waits_for_a_new_token_and_goes_on_with_it(tmp_path):
    store, init = str(tmp_path / "run.db"), write_model(tmp_path / "model")
    file = tmp_path / "ann.token"
    file.write_text(add_token(store, "ann", expires_s=time.time() + 3600))
    add_token(store, "ops", rights="operate")
    with ServerProcess(store, init, tmp_path / "log") as server:
        patient = Connection(retry=Retry(tries=None, first_s=0.05, max_s=0.2, max_retry_after_s=0))
        with Worker(server_url(server), token_file=file, connection=patient) as worker:
            snapshot = worker.pull()
            direction = np.full(snapshot.params.shape, 0.01, np.float32)
            assert worker.push(direction, local_lr=0.1).status == "accepted"
            add_token(store, "ann", expires_s=time.time() + 2)  # the worker's is replaced
            token = rotate_token(store, "ann", overlap_s=0, expires_s=time.time() + 2)
            file.write_text(token)
            assert worker.push(direction, local_lr=0.1).status == "accepted"
            time.sleep(2.2)
            with Worker(server_url(server), token=token, connection=patient) as other:
                with pytest.raises(WorkerError, match=r"expired on .* Ask the operator") as ended:
                    other.pull()  # which no file can help
                assert ended.value.code == "expired"
            answers = []
            pushing = threading.Thread(
                target=lambda: answers.append(worker.push(direction, local_lr=0.1).status)
            )
            pushing.start()
            time.sleep(1.0)
            assert pushing.is_alive()  # it waits, and keeps its update
            file.write_text(rotate_token(store, "ann", overlap_s=0, expires_s=time.time() + 600))
            pushing.join(20)
            assert answers == ["accepted"]
        assert server.stop() == 0
    used = {account.worker: account.used_s for account in list_tokens(store)}
    assert abs(used["ann"] - time.time()) < 60  # stored when the server stopped
    assert used["ops"] is None
    text = server.text()
    assert '"code": "expired"' in text
    assert token.partition(".")[2] not in text


def server_url(server):
    return f"http://127.0.0.1:{server.port}"


def test_what_is_known_of_tokens_survives_a_kill(place, tmp_path):
    """Beside a running server, on both databases."""
    init = write_model(tmp_path / "model")
    ann = add_token(place, "ann", rights="push")
    server = ServerProcess(place, init, tmp_path / "log")
    with server:
        new = rotate_token(place, "ann", overlap_s=3600)
        add_token(place, "bob", expires_s=time.time() + 5 * 86_400)

        def states():
            with Line(server.port) as line:
                headers = [f"Authorization: Bearer {t}" for t in (ann, new, "ann.wrong")]
                return [told(line.get("/v1/model", header)) for header in headers]

        known = [(403, "not_allowed")] * 2 + [(401, "unauthorized")]
        until(lambda: states() == known, 10)
        until(lambda: "token_expires_soon" in server.text(), 10)
        server.kill()
        server.start()
        server.await_ready()
        assert states() == known
