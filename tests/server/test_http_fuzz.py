"""Nonsense over sockets: no 500, no traceback, no growth, and the model as it was.

``ANARCHIC_FUZZ`` sets how many connections are made (100,000 in ``make fuzz``).
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.chaos.fuzz import exchange, requests
from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line
from tests.chaos.updates import encoded

COUNT = int(os.environ.get("ANARCHIC_FUZZ", "600"))
WARM_UP = 300  # connections until buffers and caches have their size


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    init = write_model(folder / "model.safetensors")
    words = ("--open-enrolment", "--m", "4", "--per-worker", "4")
    with ServerProcess(str(folder / "run.db"), init, folder / "log", *words) as server:
        yield server


@pytest.mark.slow
def test_malformed_requests_change_nothing(server):
    with Line(server.port) as line:
        for number in range(5):
            assert line.push(encoded(LAYOUT, f"w{number % 2}", str(number))).status == 202
        while server.status()["version"] == 0:
            time.sleep(0.01)
        before = line.get("/v1/model").body
    _throw(server, range(-WARM_UP, 0))
    settled_mb, statuses = server.rss_mb(), _throw(server, range(COUNT))
    growth_mb = server.rss_mb() - settled_mb
    sys.stdout.write(
        f"{COUNT} connections, answers {dict(sorted(statuses.items()))}, RSS {settled_mb:.0f} MB "
        f"then {growth_mb:+.1f} MB\n"
    )
    assert server.running
    assert not [status for status in statuses if status >= 500]
    assert {200, 400, 404, 405, 409, 411, 422} <= statuses.keys()
    assert "Traceback" not in server.text()
    assert "aggregator_failed" not in server.text()
    assert growth_mb < 30
    with Line(server.port) as line:
        assert line.get("/v1/model").body == before
        status = line.get("/v1/status").json()
        assert (status["version"], status["updates"]["accepted"]) == (1, 5)
        assert line.push(encoded(LAYOUT, "ann", "last")).status == 202


def _throw(server, seeds) -> Counter[int]:
    def one(seed: int) -> list[int]:
        # Some hang up while the server is still at it.
        patience_s = 0.001 if seed % 10 == 0 else 0.1
        heard = exchange(server.port, requests(seed), patience_s=patience_s)
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", heard)]

    found: Counter[int] = Counter()
    with ThreadPoolExecutor(8) as pool:
        for statuses in pool.map(one, seeds, chunksize=50):
            found.update(statuses)
    return found
