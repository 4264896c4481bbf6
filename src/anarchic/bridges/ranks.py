"""Several processes that train one model (DDP) as one worker: the first talks to the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from torch import distributed

from anarchic.core.types import Layout, Snapshot, Vector
from anarchic.errors import ConfigError
from anarchic.worker import Answer, Connection, Retry, Worker


def shared(worker: Worker | None) -> Any:
    """The worker itself, or, among several processes, one that all of them may use."""
    ready = distributed.is_available() and distributed.is_initialized()
    if ready and distributed.get_world_size() > 1:
        return SharedWorker(worker)
    if worker is None:
        raise ConfigError("A visit needs a worker; None is for further processes of DDP.")
    return worker


@final
class SharedWorker:
    """What a visit needs of a worker. The first process has one and tells the others."""

    layout: Layout

    def __init__(self, worker: Worker | None) -> None:
        self.first = distributed.get_rank() == 0
        if self.first and worker is None:
            raise ConfigError("The first process of DDP needs a worker, got None.")
        self._worker = worker
        self.shares = self if worker is None else worker
        self.name = None if worker is None else worker.name
        self.connection = Connection() if worker is None else worker.connection
        self.spool = None if worker is None else worker.spool
        self._state: Mapping[str, Vector] = {}

    def pull(self, *, retry: Retry | None = None, own: bool = False) -> Snapshot:
        """The newest model, in all processes; so is an error."""
        found: list[Any] = [None]
        if self.first:
            assert self._worker is not None
            try:
                snapshot, worker = self._worker.pull(retry=retry, own=own), self._worker
                found = [(snapshot, worker.layout, worker.local_state())]
            except Exception as error:
                found = [error]
        distributed.broadcast_object_list(found, src=0)
        if isinstance(found[0], Exception):
            raise found[0]
        pulled: Snapshot
        pulled, self.layout, self._state = found[0]
        return pulled

    def local_state(self) -> Mapping[str, Vector]:
        return self._state

    def push(self, direction: Vector, **facts: Any) -> Answer:
        """By the first process: DDP keeps the models of all of them the same."""
        assert self._worker is not None
        return self._worker.push(direction, **facts)
