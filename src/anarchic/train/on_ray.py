"""The backend beyond one machine: lanes spread over the actors of a Ray cluster.

The task is placed in the cluster's object store once, and so is every version that lanes start
from; an actor maps them from its machine's memory and carries its lanes out as ``Batched`` does.
What a visit draws is a function of (seed, worker, visit, step), so a visit that was lost with its
actor is computed again elsewhere, with the same result.

A task travels as pickle. That is the transport inside a cluster of one's own, whose machines run
each other's code in any case; it has nothing to do with the network of workers, where nothing is
ever unpickled.
"""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, final
from weakref import ref

import numpy as np

from anarchic.core.types import Integers, Snapshot
from anarchic.errors import ConfigError, RunError
from anarchic.train.backends import Batched
from anarchic.train.compute import computing
from anarchic.train.parcel import Parcel, packed, unpacked
from anarchic.train.task import Computed, Lanes, Task, blank

RETRIES = 3  # of the same lanes, and of starting actors where there are none left
RESTART_S = 5.0  # how often the cluster is asked for cores that are not used yet

Actor = Any  # Ray's handle of an actor
Reference = Any  # Ray's handle of an object: a result to come, or what was placed in the store


@cache
def shared() -> OnRay:
    """The backend of this process: two of them would wait for each other's cores."""
    return OnRay()


@final
class OnRay:
    """Computes lanes in shares of about equal work, each by an actor that is free.

    ``actors`` is how many to start; None is one per core of the cluster. ``address`` is the
    cluster's; None is Ray's own order: ``RAY_ADDRESS``, a cluster that runs on this machine, one
    started here for the purpose. ``lanes_per_call`` bounds the lanes of a share; None gives every
    actor one share. ``patience_s`` is how long all actors may take to start.

    When an actor is lost, its share is given to another. Actors that are missing are
    started anew, so a machine that joins, or comes back, is in use a few seconds later.
    """

    def __init__(
        self,
        actors: int | None = None,
        address: str | None = None,
        lanes_per_call: int | None = None,
        *,
        patience_s: float = 60.0,
    ) -> None:
        for name, value in (("actors", actors), ("lanes_per_call", lanes_per_call)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}.")
        if find_spec("ray") is None:
            raise ConfigError("Backend 'ray' needs Ray: pip install 'anarchic[ray]'.")
        self._actors, self._address = actors, address
        self.lanes_per_call, self._patience_s = lanes_per_call, patience_s
        self._session: tuple[str, str] | None = None

    def compute(self, task: Task, lanes: Lanes) -> Computed:
        if not isinstance(lanes.snapshots[0].params, np.ndarray):
            raise ConfigError("Backend 'ray' computes on CPUs: use device cpu, or backend batched.")
        self._connect()
        self._pool.prepare(task)
        most = self.lanes_per_call
        count = self._pool.size if most is None else -(-len(lanes) // most)
        todo = deque(map(_Share, split_evenly(lanes.local_steps, count)))
        results, unfinished = blank(task, lanes), len(todo)
        while unfinished:
            while todo and self._pool.idle:
                share = todo.popleft()
                some = lanes.take(share.lanes)
                starts = [self._place(snapshot) for snapshot in some.snapshots]
                self._pool.send(share, replace(some, snapshots=[]), starts)
            for share, computed in self._pool.wait():
                if computed is None:
                    todo.append(share.again(self._pool.loss))
                else:
                    _put_in_place(results, share.lanes, computed)
                    unfinished -= 1
        return results

    def _connect(self) -> None:
        import ray

        if not ray.is_initialized():
            _join_cluster(self._address)
        context = ray.get_runtime_context()
        session = context.gcs_address, context.get_job_id()
        if session != self._session:
            self._session = session
            self._pool = _ActorPool(self._actors, self._patience_s)
            self._placed: dict[int, tuple[ref[Any], Reference]] = {}

    def _place(self, snapshot: Snapshot) -> Reference:
        """A version in the object store, put there once and dropped when the engine drops it."""
        import ray

        placed, key = self._placed, id(snapshot.params)
        if key not in placed:
            gone = ref(snapshot.params, lambda _: placed.pop(key, None))
            placed[key] = gone, ray.put(snapshot)
        return placed[key][1]


@dataclass(frozen=True)
class _Share:
    """Lanes that one actor computes in one call."""

    lanes: Integers
    lost: int = 0  # times

    def again(self, loss: Exception | None) -> _Share:
        if self.lost == RETRIES:
            raise RunError(
                f"The same {len(self.lanes)} visits were lost {self.lost + 1} times with the Ray "
                f"actors that computed them, the last time by {_first_line(loss)} If it is "
                "memory that is short, set lanes_per_call."
            ) from loss
        return _Share(self.lanes, self.lost + 1)


class _ActorPool:
    """Starts the actors of one cluster, all with the same task, and hands them their shares."""

    def __init__(self, actors: int | None, patience_s: float) -> None:
        self._actors, self._patience_s = actors, patience_s
        self._task: Task | None = None
        self._parcel: Reference = None
        self._busy: dict[Reference, tuple[Actor, _Share | None]] = {}  # None: no result to keep
        self._started_at = -np.inf  # when actors that were missing were last started
        self._attempts = 0  # to start the first actor, since the last answer of any
        self.idle: list[Actor] = []
        self.loss: Exception | None = None  # the last

    @property
    def size(self) -> int:
        """How many actors can work now; at the start, how many are being started."""
        return max(1, len(self.idle) or len(self._busy))

    def prepare(self, task: Task) -> None:
        """Give all actors the task, and from time to time start those that are missing."""
        import ray

        # Results of a call that was broken off are not wanted any more.
        self._busy = {reference: (actor, None) for reference, (actor, _) in self._busy.items()}
        self._attempts = 0
        if self._task is not task:
            self._task, self._parcel = task, ray.put(packed(task))
            actors = [*self.idle, *(actor for actor, _ in self._busy.values())]
            self.idle, self._busy = [], {}
            for actor in actors:
                self._busy[actor.hold.remote(self._parcel)] = actor, None
        if time.monotonic() - self._started_at > RESTART_S:
            self._start_missing()
        if self._busy:
            self._collect(ray.wait(list(self._busy), num_returns=len(self._busy), timeout=0)[0])

    def send(self, share: _Share, lanes: Lanes, starts: list[Reference]) -> None:
        """Let an idle actor compute the lanes; ``starts`` are their snapshots in the store."""
        actor = self.idle.pop()
        self._busy[actor.visits.remote(lanes, *starts)] = actor, share

    def wait(self) -> list[tuple[_Share, Computed | None]]:
        """Wait for the next results, None for one that was lost; none if an actor got ready."""
        import ray

        if not self._busy:
            self._start_first()
        working = any(share is not None for _, share in self._busy.values())
        timeout_s = None if working else self._patience_s
        ready, _ = ray.wait(list(self._busy), num_returns=1, timeout=timeout_s)
        if not ready:
            free, cores = ray.available_resources(), ray.cluster_resources()
            raise RunError(
                f"No Ray actor was ready within {self._patience_s:g} s; of the cluster's "
                f"{cores.get('CPU', 0):g} cores {free.get('CPU', 0):g} are free. An actor needs "
                "one: wait until others are done, or add machines."
            )
        return self._collect(ready)

    def _collect(self, ready: list[Reference]) -> list[tuple[_Share, Computed | None]]:
        import ray
        from ray import exceptions as ray_says

        # That an actor, its machine or its result is gone.
        machine, result = ray_says.NodeDiedError, ray_says.ObjectLostError
        losses = ray_says.RayActorError, ray_says.WorkerCrashedError, machine, result
        found = []
        for reference in ready:
            actor, share = self._busy.pop(reference)
            computed = None
            try:
                computed = ray.get(reference)
            except losses as loss:
                self.loss, self._started_at = loss, -np.inf
            else:
                self._attempts = 0
                self.idle.append(actor)
            if share is not None:
                found.append((share, computed))
        return found

    def _start_first(self) -> None:
        if self._attempts > RETRIES:
            raise RunError(
                f"No Ray actor stays alive, after {self._attempts} attempts: "
                f"{_first_line(self.loss)} Is anarchic installed on every machine?"
            ) from self.loss
        self._attempts += 1
        self._start_missing()

    def _start_missing(self) -> None:
        """Start the actors that are missing; without a free core they wait for one."""
        import ray

        self._started_at = time.monotonic()
        wanted = self._actors or max(1, int(ray.cluster_resources().get("CPU", 1)))
        remote = ray.remote(_Actor).options(num_cpus=1, scheduling_strategy="SPREAD")
        for _ in range(wanted - len(self.idle) - len(self._busy)):
            actor = remote.remote()
            self._busy[actor.hold.remote(self._parcel)] = actor, None


class _Actor:
    """What runs on the cluster: it holds the task and computes the lanes that it is given."""

    def hold(self, parcel: Parcel) -> None:
        self._task = unpacked(parcel)

    @np.errstate(over="ignore", invalid="ignore")  # the engine says more than a warning
    def visits(self, lanes: Lanes, *snapshots: Snapshot) -> Computed:
        with computing(threads=1):  # an actor has one core
            return Batched().compute(self._task, replace(lanes, snapshots=list(snapshots)))


def split_evenly(local_steps: Integers, count: int) -> list[Integers]:
    """Lanes in at most ``count`` shares of about equal sums of local steps.

    The longest first, each to the share that has least to do.

    >>> [share.tolist() for share in split_evenly(np.array([1, 5, 2, 2]), 2)]
    [[1], [0, 2, 3]]
    """
    shares: list[list[int]] = [[] for _ in range(min(count, len(local_steps)))]
    sums = np.zeros(len(shares), np.int64)
    for lane in np.argsort(-local_steps, kind="stable").tolist():
        least = int(sums.argmin())
        shares[least].append(lane)
        sums[least] += local_steps[lane]
    return [np.sort(share) for share in shares]


def _put_in_place(results: Computed, lanes: Integers, computed: Computed) -> None:
    results.directions[lanes] = computed.directions
    for name, matrix in computed.extras.items():
        results.extras[name][lanes] = matrix
    for name, matrix in computed.kept.items():
        results.kept[name][lanes] = matrix


def _join_cluster(address: str | None) -> None:
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    try:
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="error")
    except ConnectionError as error:
        raise RunError(
            f"No Ray cluster answers at {address or os.environ.get('RAY_ADDRESS')!r}: start one "
            "with ray start --head, or leave the address out."
        ) from error


def _first_line(error: Exception | None) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
