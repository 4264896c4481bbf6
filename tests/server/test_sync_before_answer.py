"""The sync to disk comes before the answer: a SIGKILL alone does not test that."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from anarchic.errors import StoreFull
from anarchic.server.app import make_app
from anarchic.server.service import Service
from anarchic.server.settings import ServerSettings
from anarchic.server.store import open_store
from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line
from tests.chaos.updates import encoded
from tests.server.live import BYTES
from tests.server.make import begun, body


class SlowDisk:
    """A store whose ``append`` returns when it is allowed to, and may fail then."""

    def __init__(self, store):
        self._store, self.sync = store, threading.Event()
        self.appending = threading.Event()
        self.failure: Exception | None = None

    def __getattr__(self, name):
        return getattr(self._store, name)

    def append(self, updates):
        self.appending.set()
        assert self.sync.wait(20)
        if self.failure is not None:
            raise self.failure
        return self._store.append(updates)


def test_no_answer_comes_before_the_store_has_returned(tmp_path):
    asyncio.run(_push_to_a_slow_disk(tmp_path, None, 202))


def test_no_answer_says_accepted_if_the_store_fails(tmp_path):
    asyncio.run(_push_to_a_slow_disk(tmp_path, StoreFull("no room"), 507))


def test_collecting_goes_on_after_a_bug_in_the_store(tmp_path):
    """Every later worker would wait for ever."""
    asyncio.run(_push_to_a_slow_disk(tmp_path, ZeroDivisionError("a bug"), 503))


async def _push_to_a_slow_disk(tmp_path: Path, failure: Exception | None, status: int) -> None:
    disk = SlowDisk(open_store(tmp_path / "run.db"))
    begun(disk)
    service = Service(disk, ServerSettings(open_enrolment=True), log=lambda event, **facts: None)
    await service.start()
    transport = httpx.ASGITransport(make_app(service))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://server", headers=BYTES
    ) as client:
        push = asyncio.create_task(client.post("/v1/updates", content=body("ann", "1")))
        await asyncio.to_thread(disk.appending.wait, 20)
        done, _ = await asyncio.wait([push], timeout=0.3)
        assert not done
        disk.failure = failure
        disk.sync.set()
        assert (await push).status_code == status
        disk.failure = None
        again = await client.post("/v1/updates", content=body("ann", "1"))
        assert again.status_code == (200 if failure is None else 202)
    await service.stop()
    disk.close()


@dataclass
class Call:
    """A system call: the lines of the trace in which it began and ended."""

    name: str
    text: str
    began: int
    ended: int


def calls(trace: str) -> list[Call]:
    """The calls of a trace by ``strace -f -yy``, with those that were interrupted put together."""
    found, open_calls = [], {}
    for number, line in enumerate(trace.splitlines()):
        match = re.match(r"(\d+) +(?:<\.\.\. (\w+) resumed>)?(.*)", line)
        if match is None:
            continue
        process, resumed, text = match.groups()
        if resumed is not None:
            call = open_calls.pop(process, None)
            if call is not None:
                call.text, call.ended = call.text + text, number
                found.append(call)
            continue
        name = text.split("(")[0]
        call = Call(name, text, number, number)
        if text.endswith("<unfinished ...>"):
            open_calls[process] = call
        else:
            found.append(call)
    return found


def unsynced(trace: list[Call], before: int, store: str) -> list[str]:
    """Files of the store with writes that no sync had made durable when line ``before`` began."""
    dirty = {}
    for call in sorted(trace, key=lambda call: call.ended):
        place = re.search(rf"<({re.escape(store)}(-journal)?)>", call.text)
        if place is None or call.began >= before:
            continue
        if "write" in call.name:
            dirty[place[1]] = call.ended
        elif call.ended < before and dirty.get(place[1], before) < call.began:
            del dirty[place[1]]
    return list(dirty)


def test_a_system_call_trace_is_parsed():
    trace = calls(
        "7 pwrite64(3</run.db>, x) = 1\n"
        "7 fdatasync(3</run.db> <unfinished ...>\n"
        '8 sendto(9<TCP:[1]>, "HTTP/1.1 202") = 12\n'
        "7 <... fdatasync resumed>) = 0\n"
    )
    assert unsynced(trace, 2, "/run.db") == ["/run.db"]
    assert unsynced(trace, 4, "/run.db") == []


def _may_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return tried.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="strace is for Linux")
def test_the_system_calls_of_a_server_sync_before_they_answer(tmp_path):
    if not _may_trace():
        pytest.skip("strace is not installed or may not trace here")
    store, record = tmp_path / "run.db", tmp_path / "trace"
    init = write_model(tmp_path / "model.safetensors")
    # Not one step is due: a publication would write and sync at its own time.
    words = ("--open-enrolment", "--m", "100", "--per-worker", "100")
    server = ServerProcess(str(store), init, tmp_path / "log", *words)
    kinds = "write,pwrite64,writev,pwritev,pwritev2,sendto,sendmsg,fsync,fdatasync,sync_file_range"
    server.start(under=("strace", "-f", "-yy", "-s", "40", "-e", f"trace={kinds}", "-o", record))
    try:
        server.await_ready(60)
        with Line(server.port) as line:
            for number in range(5):
                assert line.push(encoded(LAYOUT, "ann", str(number))).status == 202
    finally:
        _stop_what_it_runs(server.pid)
        server.wait()
    trace = calls(record.read_text())
    answers = [c for c in trace if "HTTP/1.1 202" in c.text and str(store) not in c.text]
    assert len(answers) == 5
    for answer, since in zip(answers, [0, *(former.ended for former in answers)], strict=False):
        between = [c for c in trace if since < c.ended < answer.began and str(store) in c.text]
        synced = {re.search(r"<([^>]*)>", c.text)[1] for c in between if "sync" in c.name}
        assert synced >= {str(store), f"{store}-journal"}
        assert unsynced(trace, answer.began, str(store)) == []


def _stop_what_it_runs(pid: int) -> None:
    """strace ends when what it traces has ended."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        os.kill(int(child), signal.SIGTERM)
