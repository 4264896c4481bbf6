"""A worker's connection to its server: pull a model, push an update, lose nothing in between."""

from __future__ import annotations

import logging
import math
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Self, final

from anarchic import wire
from anarchic.core.names import WORKER_NAME, check_run_name
from anarchic.core.options import says_options
from anarchic.core.types import EMPTY, Layout, Snapshot, Update, Vector
from anarchic.errors import ConfigError, MalformedUpdate, RunError, WorkerError
from anarchic.worker.connection import (
    Answer,
    Connection,
    Refused,
    Retry,
    RetryableError,
    read_answer,
    unexpected,
)
from anarchic.worker.foreign import not_ours, start_of
from anarchic.worker.log import log_event
from anarchic.worker.policy import WallClock, WorkerClock
from anarchic.worker.spool import OutgoingUpdate, Spool
from anarchic.worker.visit_loop import Summary, VisitLoop, WorkPlan

if TYPE_CHECKING:
    from anarchic.worker.exchange import Reply
    from anarchic.worker.task import LiveTask

_TAG = re.compile(r'(?:W/)?"[!#-~]{1,200}"')  # what is sent back as If-None-Match
STATE = "X-Anarchic-State"  # of the run, told with every model
OWN_PART, OWN_MOST_S, OWN_PAUSE_S = 0.1, 1.0, 0.02  # how long to wait for the own update


@says_options
@final
class Worker:
    """A connection to a server: pulls its model and pushes updates. For one thread.

    Several addresses (a list, or one text with commas) are replicas of one run: they are tried in
    turn when one cannot be reached or answers with 5xx, and the one that answers stays in use.
    ``token`` proves who the worker is; ``token_file`` is the file that holds it, which is read
    again when the server refuses it. Where enrolment is open a ``name`` is enough. With a
    ``spool`` directory an update that is not yet sent survives the worker's death. What fails is
    tried again with the same id and the same bytes, so that it counts once. ``clock`` and ``rng``
    are for tests. On a server of several runs, ``run`` names the one to take part in.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        run: str | None = None,
        token: str | os.PathLike[str] | None = None,
        token_file: str | os.PathLike[str] | None = None,
        name: str | None = None,
        spool: str | os.PathLike[str] | Spool | None = None,
        connection: Connection | None = None,
        clock: WorkerClock | None = None,
        rng: Random | None = None,
    ) -> None:
        from anarchic.worker.channel import Channel, Token  # brings httpx
        from anarchic.worker.servers import Servers

        if token is not None and token_file is not None:
            raise ConfigError("Give token or token_file, not both.")
        base = base_of(run)
        self._pull_route, self._push_route = ("GET", f"{base}/model"), ("POST", f"{base}/updates")
        told = token if token_file is None else Path(token_file)
        proof = None if told is None else Token(told)
        self.name = _name(proof.worker if proof else None, name)
        self._says_name = proof is None
        self.connection = connection or Connection()
        self.clock, self.rng = clock or WallClock(), rng or Random()
        self._channel = Channel(
            Servers(url), proof, self.connection,
            clock=self.clock, rng=self.rng, look=self._look,
        )  # fmt: skip
        self.spool = spool if isinstance(spool, Spool) or spool is None else Spool(spool)
        self._pulled: tuple[str, Layout, Snapshot, str] | None = None  # ETag, ..., run
        self._epoch: str | None = None  # in which the server published what was pulled
        self.run_ended = False  # as of the last pull: the operator has ended the run
        self._pulled_s = 0.0
        self._own: tuple[int, float] = (-1, 0.0)  # base version of the last update, time to wait
        self._local_state: tuple[str, Mapping[str, Vector]] = ("", EMPTY)  # run, vectors

    def __repr__(self) -> str:
        return f"Worker({str(self._channel.servers.url)!r}, name={self.name!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and the spool; what waits in it is for the next worker."""
        self._channel.close()
        if self.spool is not None:
            self.spool.close()

    @property
    def layout(self) -> Layout:
        """The tensors of the server's model."""
        return self._model()[0]

    @property
    def run_id(self) -> str:
        """The server's run, as of the last pull."""
        return self._model()[2]

    @property
    def stopping(self) -> bool:
        return self._channel.stopping

    def stop(self) -> None:
        """End ``run`` soon, and retry nothing; may be called from anywhere.

        A request on its way is given up after ``Connection.stop_s``.
        """
        self._channel.stop()
        self.clock.wake()

    def run(self, task: LiveTask, plan: WorkPlan | None = None) -> Summary:
        """Pull, train, push, and again, as the plan says: until its end, ``stop``, or a signal.

        It outlasts any absence of the server.
        """
        try:
            return VisitLoop(self, task, plan or WorkPlan()).run()
        finally:
            self._channel.stopping = False

    def pull(self, *, retry: Retry | None = None, own: bool = False) -> Snapshot:
        """The newest model; it is not sent again if it is the one pulled last.

        An update is accepted a moment before it is folded. ``own`` waits for a version newer than
        the one that the update pushed last started from: for up to a tenth of the time that this
        update took, and a second at most.
        """
        snapshot, until_s = self._pull(retry), self.clock.elapsed_s() + self._own[1]
        while own and snapshot.version == self._own[0] and self.clock.elapsed_s() < until_s:
            self.clock.sleep(OWN_PAUSE_S)
            snapshot = self._pull(retry)
        self._pulled_s = self.clock.elapsed_s()
        return snapshot

    def _pull(self, retry: Retry | None) -> Snapshot:
        self._pulled = self._channel.ask(
            self._pull_route,
            self._read_model,
            retry=retry or self.connection.retry,
            headers=self._known(),
        )
        return self._pulled[2]

    def _look(self) -> bool:
        """Pull once, from the server in use, which must have the same run: is the model new?"""
        known = self._known()
        self._pulled = self._channel.once(self._pull_route, self._read_model, headers=known)
        return self._known() != known

    def _known(self) -> dict[str, str]:
        return {"If-None-Match": self._pulled[0]} if self._pulled and self._pulled[0] else {}

    def push(
        self,
        update: Update | Vector,
        *,
        base_version: int | None = None,
        local_steps: int = 1,
        local_lr: float = 0.0,
        samples: int = 0,
        extras: Mapping[str, Vector] = EMPTY,
        loss: float | None = None,
        local_state: Mapping[str, Vector] = EMPTY,
        retry: Retry | None = None,
    ) -> Answer:
        """Send an update, or a direction and its facts; return once the server has stored it.

        The base version is that of the last pull unless another is given. ``local_state`` replaces
        what ``local_state()`` gives, once the server has accepted the update. Raises
        ``WorkerError`` if the server refuses the update, or if all tries fail; an update that is
        spooled is then sent before the next one.
        """
        _, snapshot, _ = self._model()
        if not isinstance(update, Update):
            based = snapshot.version if base_version is None else base_version
            update = Update(self.name or "", based, local_steps, local_lr, update, samples, extras)
        if not 0 < update.local_lr < math.inf:
            raise ConfigError(f"An update needs a rate local_lr > 0, got {update.local_lr}.")
        wait_s = min(OWN_PART * (self.clock.elapsed_s() - self._pulled_s), OWN_MOST_S)
        self._own = (update.base_version, wait_s)
        outgoing = self.encode(update, loss=loss, local_state=local_state)  # before a new pull
        answer = self._send_in_turn(outgoing, retry or self.connection.retry)
        if isinstance(answer, Refused):
            raise WorkerError(answer.message, answer.code)
        return answer

    def encode(
        self,
        update: Update,
        *,
        loss: float | None = None,
        local_state: Mapping[str, Vector] = EMPTY,
    ) -> OutgoingUpdate:
        """An update as it will be sent, with a new id if it has none.

        ``local_state`` is what the local rule keeps once the server has accepted the update.
        """
        if self.name is None:
            raise ConfigError("To push, a worker needs a token, or a name where enrolment is open.")
        layout, snapshot, run = self._model()
        epoch = self._epoch if update.base_version == snapshot.version else None
        update = replace(update, id=update.id or uuid.uuid4().hex)
        name, dtype = self.name if self._says_name else None, self.connection.dtype
        body = wire.encode_update(
            layout, update, dtype=dtype, loss=loss, worker=name, run=run, epoch=epoch
        )
        return OutgoingUpdate(update.id, run, update.base_version, body, local_state)

    def send(self, outgoing: OutgoingUpdate, *, retry: Retry | None = None) -> Answer | Refused:
        """Store an update in the spool and send it until the server has accepted or refused it."""
        return self._post(outgoing, self._store(outgoing), retry or self.connection.retry)

    def send_spooled(self, *, retry: Retry | None = None) -> dict[str, int]:
        """Send what waits in the spool; returns how many updates met with each outcome."""
        return self._resend_all(self._waiting(), retry or self.connection.retry)

    def local_state(self) -> Mapping[str, Vector]:
        """What a local rule has kept from earlier visits in this run."""
        run = self.run_id
        if self._local_state[0] != run:
            found = self.spool.local_state(run) if self.spool is not None else EMPTY
            self._local_state = (run, found)
        return self._local_state[1]

    def _model(self) -> tuple[Layout, Snapshot, str]:
        if self._pulled is None:
            self.pull()
        assert self._pulled is not None
        return self._pulled[1:]

    def _read_model(self, answer: Reply) -> tuple[str, Layout, Snapshot, str]:
        self.run_ended = answer.headers.get(STATE) == "ended"
        if answer.status_code == 304 and self._pulled is not None:
            self._channel.servers.confirm(self._pulled[3])
            return self._pulled
        if answer.status_code != 200:
            raise unexpected(answer)
        try:
            layout, snapshot, run = wire.decode_snapshot(answer.content)
            _, _, self._epoch = wire.snapshot_facts(answer.content)
        except (RunError, MalformedUpdate) as error:
            told = not_ours(answer) if start_of(answer) else str(error)
            raise RetryableError("garbled", told) from error
        self._channel.servers.confirm(run)
        for vector in (snapshot.params, *snapshot.extras.values()):
            vector.flags.writeable = False
        tag = answer.headers.get("ETag", "")
        return tag if _TAG.fullmatch(tag) else "", layout, snapshot, run

    def _store(self, outgoing: OutgoingUpdate) -> str | None:
        """Put an update into the spool; the name of its file there."""
        if self.spool is None:
            return None
        try:
            return self.spool.put(outgoing)
        except OSError as error:  # a full disk: better sent from memory than not at all
            log_event("spool_failed", logging.WARNING, id=outgoing.id, reason=str(error))
            return None

    def _waiting(self) -> list[str]:
        return self.spool.waiting() if self.spool is not None else []

    def _send_in_turn(self, outgoing: OutgoingUpdate, retry: Retry) -> Answer | Refused:
        """Send an update after those that wait; it is stored first, since they may take long."""
        earlier = self._waiting()
        try:
            file = self._store(outgoing)
        except WorkerError:  # the spool is full: make room
            self._resend_all(earlier, retry)
            earlier, file = [], self._store(outgoing)
        self._resend_all(earlier, retry)
        return self._post(outgoing, file, retry)

    def _resend_all(self, files: list[str], retry: Retry) -> dict[str, int]:
        outcomes: dict[str, int] = {}
        for file in files:
            if self.stopping:
                break
            outcome = self._resend(file, retry)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        return outcomes

    def _resend(self, file: str, retry: Retry) -> str:
        assert self.spool is not None
        outgoing = self.spool.get(file)
        if outgoing is None:
            return "damaged"
        self.pull(retry=retry)
        if outgoing.run != self.run_id:  # its versions are those of another model
            if len(self._channel.servers.all) > 1:
                raise self._other_run(outgoing)
            self.spool.remove(file)
            outcome = "other_run"
        else:
            answer = self._post(outgoing, file, retry)
            outcome = answer.code if isinstance(answer, Refused) else answer.status
        log_event("resend", status=outcome, id=outgoing.id, base_version=outgoing.base_version)
        return outcome

    def _other_run(self, outgoing: OutgoingUpdate) -> WorkerError:
        """Where several servers are given, another one may still want what waits."""
        assert self.spool is not None
        return WorkerError(
            f"An update of run {outgoing.run} waits in {self.spool.path}, but "
            f"{self._channel.servers.url} has run {self.run_id}. Several servers must be replicas "
            "of one run: give those that share a store, or another --spool for the new run.",
            "other_run",
        )

    def _post(self, outgoing: OutgoingUpdate, file: str | None, retry: Retry) -> Answer | Refused:
        headers = {"Content-Type": "application/octet-stream"}
        answer = self._channel.ask(
            self._push_route, read_answer, retry=retry, headers=headers, content=outgoing.body
        )
        if isinstance(answer, Answer) and outgoing.local_state:
            self._save_local_state(outgoing)
        if file is not None and self.spool is not None:
            self.spool.remove(file)  # last: a crash before it must not lose the local state
        return answer

    def _save_local_state(self, outgoing: OutgoingUpdate) -> None:
        self._local_state = (outgoing.run, outgoing.local_state)
        if self.spool is not None:
            try:
                self.spool.save_local_state(*self._local_state)
            except OSError as error:
                log_event("spool_failed", logging.WARNING, id=outgoing.id, reason=str(error))


def base_of(run: str | None) -> str:
    """Where the routes of a run begin; None: the only run of a server."""
    return "v1" if run is None else f"v1/runs/{check_run_name(run)}"


def _name(owner: str | None, name: str | None) -> str | None:
    if owner is None:
        if name is not None and not WORKER_NAME.fullmatch(name):
            raise ConfigError(
                f"A worker's name has 1 to 64 letters, digits, '_', '.', '@' or '-', got {name!r}."
            )
        return name
    if name not in (None, owner):
        raise ConfigError(f"The token is that of {owner!r}, not of {name!r}.")
    return owner
