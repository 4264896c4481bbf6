"""The worker in plain HTTP, which knows nothing of us, trains against the real server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest

from anarchic import Layout, wire
from anarchic.data.digits import DIGITS_FILE
from tests.chaos.servers import ServerProcess

EXAMPLE = Path(__file__).parents[2] / "examples" / "plain_http_worker.py"
LAYOUT = Layout.of({"bias": ((10,), "F32"), "weight": ((10, 64), "F32")})


def accuracy(params):
    """On the images as the example scales them."""
    with np.load(DIGITS_FILE) as stored:
        images, labels = stored["images"], stored["labels"]
    x = ((images - images.mean()) / images.std()).reshape(len(labels), -1)
    return (x @ params[10:].reshape(10, 64).T + params[:10]).argmax(axis=1) == labels


@pytest.mark.slow
def test_workers_in_plain_http_train_the_model(tmp_path):
    init = tmp_path / "model.safetensors"
    wire.save_model(init, LAYOUT, np.zeros(650, np.float32))
    options = ("--open-enrolment", "--m", "2", "--server-lr", "8")
    with ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *options) as server:
        url = f"http://127.0.0.1:{server.port}"
        command = [sys.executable, str(EXAMPLE), url, str(DIGITS_FILE)]
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        said = [worker.communicate(timeout=90)[0] for worker in workers]
        _, snapshot, _ = wire.decode_snapshot(httpx.get(f"{url}/v1/model").content)
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert all(text.count('"accepted"') == 10 for text in said)
    assert snapshot.version == 15
    assert accuracy(snapshot.params).mean() > 0.7
