"""The log says who is refused, in few lines."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest

from anarchic.server.accounts import new_token
from anarchic.server.log import Seldom
from anarchic.server.refusals import LINES, Refusal, RefusalLog
from tests.chaos.servers import ServerProcess, write_model
from tests.chaos.talk import Line
from tests.server.live import BYTES, serving
from tests.waiting import until

STALE = Refusal(409, "stale", "The base version is too old.", "Pull.")


def test_a_few_lines_per_code_and_minute_and_a_count_of_the_others():
    lines, now = [], [0.0]
    log = RefusalLog(
        lambda event, **facts: lines.append((event, facts)), lambda _: {}, lambda: now[0]
    )
    for _ in range(1000):
        log.add(STALE, "10.0.0.7")
    facts = {"status": 409, "code": "stale", "address": "10.0.0.7"}
    assert lines == [("refused", facts)] * LINES
    log.add(replace(STALE, code="conflict"), "10.0.0.8")  # of another kind
    assert lines[-1][1]["code"] == "conflict"
    now[0] = 60.0
    log.add(STALE, "10.0.0.9")
    assert lines[-1][1] == {**facts, "address": "10.0.0.9", "left_out": 1000 - LINES}


def test_a_refusal_that_gets_no_line_costs_next_to_nothing():
    log = RefusalLog(lambda event, **facts: None, lambda _: pytest.fail("it looked for a name"))
    log._seldom = Seldom(0, 60.0)
    began = time.thread_time()
    for _ in range(10_000):
        log.add(STALE, "10.0.0.7", "Bearer ann.secret")
    assert time.thread_time() - began < 0.5  # 50 microseconds each, whoever else is busy


def test_the_worker_is_named_by_its_token_and_nothing_secret_is_logged(tmp_path):
    valid, known = new_token("ann")
    revoked, former = new_token("bob")
    replaced, _ = new_token("cleo")
    accounts = {"ann": known, "bob": replace(former, revoked=True), "cleo": new_token("cleo")[1]}
    lines = []

    async def refuse():
        async with serving(tmp_path / "run.db", open_enrolment=False) as (service, client):
            service.refusals._log = lambda event, **facts: lines.append(facts)
            service.access._accounts = accounts
            for token in (valid, revoked, replaced, "stranger.secret", "nonsense"):
                headers = {**BYTES, "authorization": f"Bearer {token}"}
                await client.post("/v1/updates", content=b"junk body", headers=headers)
            await client.get(f"/v1/{valid}")

    asyncio.run(refuse())
    assert {line.pop("address") for line in lines} == {"127.0.0.1"}
    assert lines == [
        {"status": 422, "code": "malformed", "worker": "ann"},
        {"status": 403, "code": "revoked", "worker": "bob"},
        {"status": 401, "code": "unauthorized", "claimed_worker": "cleo"},
        {"status": 401, "code": "unauthorized"},
        {"status": 401, "code": "unauthorized"},
        {"status": 404, "code": "not_found"},
    ]


@pytest.mark.slow
def test_what_is_not_http_is_logged_with_its_address(tmp_path):
    init = write_model(tmp_path / "model")
    words = (str(tmp_path / "run.db"), init, tmp_path / "log", "--open-enrolment")
    chunked = b"POST /v1/updates HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

    def refused():
        lines = [json.loads(line) for line in server.text().splitlines() if line.startswith("{")]
        return [(line["code"], line["address"]) for line in lines if line["event"] == "refused"]

    with ServerProcess(*words) as server:
        for bytes_sent, status in ((b"nonsense\r\n\r\n", 400), (chunked, 411)):
            with Line(server.port) as line:
                line.send(bytes_sent)
                assert line.answer().status == status
        expected = [("malformed", "127.0.0.1"), ("length_required", "127.0.0.1")]
        until(lambda: refused() == expected)
        assert server.stop() == 0
