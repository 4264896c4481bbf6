"""A worker that gives up soon, for servers that answer as they like."""

import numpy as np

from anarchic import wire
from anarchic.worker import Connection, Retry, Worker
from tests.hostile.answers import snapshot

ONES = np.ones(2, np.float32)
ONCE = Retry(tries=1)


def worker(server, **settings):
    chosen = {"timeout_s": 1.0, "retry": ONCE, **settings.pop("connection", {})}
    return Worker(server.url, name="ann", connection=Connection(**chosen), **settings)


def push(someone):
    return someone.push(ONES, local_steps=1, local_lr=0.1)


def wire_layout():
    return wire.decode_snapshot(snapshot())[0]
