"""A whole server of several runs in this process, reached without a port."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import httpx

from anarchic.server.app import make_app
from anarchic.server.many import Runs
from anarchic.server.origin import Origins
from anarchic.server.places import places_at
from anarchic.server.runs_app import make_runs_app
from anarchic.server.settings import Limits, RunSettings, ServerSettings
from anarchic.server.store import open_store
from tests.server.live import BYTES
from tests.server.make import begun


def begin_run(where, name, *, kept=None, **rules):
    """A run of the usual layout among those that are kept there."""
    places = places_at(where)
    try:
        store = open_store(places.create(name))
        try:
            return begun(store, kept=kept, **rules).settings["run"]
        finally:
            store.close()
    finally:
        places.close()


@asynccontextmanager
async def serving_runs(
    where, *, log=lambda event, **facts: None, limits=None, operators=False, **settings
):
    """(runs, client) of all runs that are kept there."""
    settings.setdefault("open_enrolment", True)
    chosen = ServerSettings(limits=Limits(**(limits or {})), **settings)
    origins = Origins(any_host=True)
    app = partial(make_app, origins=origins)
    runs = Runs(places_at(where), RunSettings(store=where), chosen, log, app)
    await runs.start()
    transport = httpx.ASGITransport(make_runs_app(runs, origins, operators=operators))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://server", headers=BYTES
    ) as client:
        try:
            yield runs, client
        finally:
            await runs.stop()
