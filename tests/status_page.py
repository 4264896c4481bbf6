"""The output that docs/operate.md shows of `anarchic status` and of the log.

    python -m tests.status_page          # writes both

It comes from a server of this process with a clock of its own, so it is the same every time. Only
the id of the run, the machine's name, the process and the moments of its log lines and of its
last sign of life are replaced.
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np

from anarchic.cli.status import text_of
from anarchic.server.app import make_app
from anarchic.server.log import JsonLog
from anarchic.server.overview import overview
from anarchic.server.service import Service
from anarchic.server.settings import Limits, ServerSettings
from anarchic.server.store import open_store
from tests.server.live import BYTES, until
from tests.server.make import DIM, begun, body

PAGE = Path(__file__).parents[1] / "docs" / "operate.md"
BLOCK = (
    "<!-- {0}: written by python -m tests.status_page -->\n```text\n{1}\n```\n<!-- end of {0} -->"
)
HONEST = ("ann", "bob", "cleo", "dan", "eva", "finn")
ROUNDS = 20


class Hand:
    """A clock that a test moves."""

    now = 1_790_000_000.0

    def monotonic(self):
        return self.now

    time = monotonic


async def train(service, client, clock):
    """Six honest workers, one far too long, one late, one whose updates are not finite."""

    async def push(worker, id, status=202, **facts):
        sent = body(worker, id, **facts)
        assert (await client.post("/v1/updates", content=sent)).status_code == status

    for round_ in range(ROUNDS):
        newest = service.published.newest.version
        for number, worker in enumerate(HONEST):
            clock.now += 0.3
            loss = round(2.0 / (1 + round_ / 10) + 0.01 * number, 3)
            await push(
                worker, str(round_), base_version=newest, seed=7 * round_ + number, loss=loss
            )
        late = max(0, newest - 8)
        await push("gus", str(round_), base_version=late, seed=round_, loss=1.9)
        nan = np.full(DIM, np.nan, np.float32)
        if round_ % 3 == 0:
            await push("mallory", str(round_), 422, base_version=newest, direction=nan)
        scale = 2e4 if round_ > 14 else 1.0
        await push("hugo", str(round_), base_version=newest, seed=round_, local_lr=0.1 * scale)
        await until(lambda seen=newest: service.published.newest.version > seen)
    clock.now += 4.0


def made() -> dict[str, str]:
    """What is shown, by the name of its block."""
    stream, clock = io.StringIO(), Hand()
    log = JsonLog(stream, clock, form="text")

    async def live(store):
        settings = ServerSettings(open_enrolment=True, limits=Limits(per_worker=100))
        service = Service(store, settings, log, clock=clock)
        await service.start()
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            client.headers.update(BYTES)
            await train(service, client, clock)
        await asyncio.to_thread(store.add_evaluation, ROUNDS, {"accuracy": 0.913, "loss": 0.402})
        await asyncio.to_thread(service.activity.tick, leads=True, epoch=1)
        found = await asyncio.to_thread(overview, store, clock.now)
        await service.stop()
        return found

    with (
        tempfile.TemporaryDirectory() as folder,
        closing(open_store(Path(folder) / "run.db")) as store,
    ):
        begun(store, m=8)
        found = asyncio.run(live(store))
    log.flush()
    found["run"] = "5d3f0c2a9be14e7c"
    # The leader writes its row every few real seconds, so its age would differ between runs.
    found["leader"] |= {"host": "fl-server", "pid": 4711, "seen_s": clock.now}
    lines = [line for line in stream.getvalue().splitlines() if " version version=" in line]
    moment = re.compile(r"^\S+ \S+Z")
    shown = [moment.sub(f"2026-11-16 12:00:{n * 2:02}Z", line) for n, line in enumerate(lines[-3:])]
    return {"status": text_of(found, 30), "log": "\n".join(shown)}


def written(page: str, blocks: dict[str, str]) -> str:
    """The page with these blocks in their places."""
    for name, text in blocks.items():
        whole = rf"<!-- {name}: .*?<!-- end of {name} -->"
        assert len(re.findall(whole, page, re.S)) == 1, name
        page = re.sub(whole, lambda _, n=name, t=text: BLOCK.format(n, t), page, flags=re.S)
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), made()), encoding="utf-8")
    sys.exit(0)
