"""A whole server in this process, reached without a port."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager

import httpx

from anarchic import wire
from anarchic.server.app import make_app
from anarchic.server.service import Service
from anarchic.server.settings import Limits, ServerSettings
from anarchic.server.store import open_store
from tests.server.make import begun

BYTES = {"content-type": "application/octet-stream"}


@asynccontextmanager
async def serving(
    path, *, rules=None, limits=None, keep_payloads=True, max_versions=None, **settings
):
    """(service, client) of a run in ``path``, begun if there is none."""
    store = open_store(path, keep_payloads=keep_payloads)
    try:
        if store.run() is None:
            begun(store, **(rules or {}))
        settings.setdefault("open_enrolment", True)
        chosen = ServerSettings(limits=Limits(**(limits or {})), **settings)
        service = Service(store, chosen, log=lambda event, **facts: None, max_versions=max_versions)
        await service.start()
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://server", headers=BYTES
        ) as client:
            try:
                yield service, client
            finally:
                await service.stop()
    finally:
        store.close()


@contextmanager
def stored(path):
    """The store of a run whose server has stopped."""
    store = open_store(path)
    try:
        yield store
    finally:
        store.close()


def newest_snapshot(service):
    """The newest version, as a worker that pulls it reads it."""
    return wire.decode_snapshot(service.published.newest.body)[1]


async def until(condition, timeout_s=5.0):
    """Wait for something that happens in another thread."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)
