"""A worker's link to its server: pull a model, push an update, lose nothing in between."""

from __future__ import annotations

import logging
import math
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, final

import httpx

from anarchic import wire
from anarchic.core.local import LocalRule, Sgd
from anarchic.core.types import EMPTY, Layout, Snapshot, Update, Vector
from anarchic.errors import ConfigError, LinkError, RunError
from anarchic.worker.answers import Answer, Refused, read_answer, unexpected
from anarchic.worker.channel import Channel, Retry, Secure, Token, Trouble
from anarchic.worker.clock import Clock, WallClock
from anarchic.worker.log import say
from anarchic.worker.policy import Always, Fixed, Policy, StepCount
from anarchic.worker.session import Habits, Summary, work
from anarchic.worker.spool import Finished, Spool

if TYPE_CHECKING:
    from anarchic.worker.task import LiveTask

_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
PULL, PUSH = ("GET", "v1/model"), ("POST", "v1/updates")


@final
class Worker:
    """Pulls models from a server and pushes updates to it, when it likes. For one thread.

    ``token``, or a ``token_file``, proves who the worker is; where enrolment is open a ``name`` is
    enough. With a ``spool`` directory a finished update survives the worker's death. What fails is
    tried again as ``retry`` says, with the same id and the same bytes, so that it counts once;
    ``timeout_s`` is the longest silence of the network. ``transport``, ``clock`` and ``rng`` are
    for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        name: str | None = None,
        spool: str | os.PathLike[str] | Spool | None = None,
        dtype: Literal["F32", "F16", "BF16"] = "F32",
        retry: Retry | None = None,
        timeout_s: float = 30.0,
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        client_cert: str | os.PathLike[str] | None = None,
        client_key: str | os.PathLike[str] | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        if dtype not in ("F32", "F16", "BF16"):
            raise ConfigError(f"There is no dtype {dtype!r}; there are F32, F16, BF16.")
        proof = _proof(token, token_file)
        self.name = _name(proof, name)
        self._says_name = proof is None
        self.retry, self.dtype = retry or Retry(), dtype
        self.clock, self.rng = clock or WallClock(), rng or Random()
        self._channel = Channel(
            url,
            token=proof,
            secure=Secure(ca_file, client_cert, client_key),
            proxy=proxy,
            timeout_s=timeout_s,
            transport=transport,
            clock=self.clock,
            rng=self.rng,
        )
        self.spool = spool if isinstance(spool, Spool) or spool is None else Spool(spool)
        self._pulled: tuple[str, Layout, Snapshot, str] | None = None  # ETag, ..., run
        self._kept: tuple[str, Mapping[str, Vector]] = ("", EMPTY)  # run, vectors

    def __repr__(self) -> str:
        return f"Worker({str(self._channel.url)!r}, name={self.name!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up, and leave the spool to whoever comes next."""
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
        """Ask ``run`` to come to an end, and let nothing be retried; from anywhere."""
        self._channel.stopping = True
        self.clock.wake()

    def pull(self, *, retry: Retry | None = None) -> Snapshot:
        """The newest model; if it is the one pulled last, it costs nothing but a question."""
        known = self._pulled
        headers = {"If-None-Match": known[0]} if known is not None and known[0] else {}
        self._pulled = self._channel.ask(
            PULL, self._read_model, retry=retry or self.retry, headers=headers
        )
        return self._pulled[2]

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
    ) -> Answer:
        """Hand over an update, or a direction with what belongs to it; return when it is durable.

        The base version is that of the last pull unless another is given. Raises ``LinkError`` if
        the server refuses it, or cannot be reached for as long as ``retry`` has patience; in the
        latter case an update that is spooled will be sent before the next one.
        """
        _, snapshot, _ = self._model()
        if not isinstance(update, Update):
            based = snapshot.version if base_version is None else base_version
            update = Update(self.name or "", based, local_steps, local_lr, update, samples, extras)
        if not 0 < update.local_lr < math.inf:
            raise ConfigError(f"An update needs a rate local_lr > 0, got {update.local_lr}.")
        self.send_spooled()
        outcome = self.deliver(self.finish(update, loss=loss))
        if isinstance(outcome, Refused):
            raise LinkError(outcome.message, outcome.code)
        return outcome

    def finish(
        self, update: Update, *, loss: float | None = None, kept: Mapping[str, Vector] = EMPTY
    ) -> Finished:
        """An update as it will be sent, with an id of its own if it has none.

        ``kept`` is what the local rule keeps once the server has accepted the update.
        """
        if self.name is None:
            raise ConfigError("To push, a worker needs a token, or a name where enrolment is open.")
        layout, _, run = self._model()
        update = replace(update, id=update.id or uuid.uuid4().hex)
        name = self.name if self._says_name else None
        body = wire.encode_update(layout, update, dtype=self.dtype, loss=loss, worker=name, run=run)
        return Finished(update.id, run, update.base_version, body, kept)

    def deliver(self, finished: Finished, *, retry: Retry | None = None) -> Answer | Refused:
        """Spool an update and send it until the server has taken or refused it."""
        return self._send(finished, self._spooled(finished), retry or self.retry)

    def send_spooled(self, *, retry: Retry | None = None) -> dict[str, int]:
        """Send what an earlier start left in the spool, and say how often what came of it."""
        outcomes: dict[str, int] = {}
        for place in self.spool.waiting() if self.spool is not None else []:
            outcome = self._resend(place, retry or self.retry)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        return outcomes

    def kept(self) -> Mapping[str, Vector]:
        """What a local rule keeps from visit to visit, of this run."""
        run = self.run_id
        if self._kept[0] != run:
            self._kept = (run, self.spool.kept(run) if self.spool is not None else EMPTY)
        return self._kept[1]

    def run(
        self,
        task: LiveTask,
        policy: Policy | None = None,
        *,
        steps: StepCount | None = None,
        local_lr: float = 0.1,
        local_rule: LocalRule | None = None,
        updates: int | None = None,
        most_refusals: int = 5,
    ) -> Summary:
        """Pull, train, push, and again: until ``updates`` were accepted, or ``stop``, or a signal.

        It outlasts any absence of the server. Updates that the server finds too old are dropped;
        ``most_refusals`` others in a row end it, since something must be wrong.
        """
        habits = Habits(
            policy or Always(), steps or Fixed(10), local_lr, local_rule or Sgd(), most_refusals
        )
        try:
            return work(self, task, habits, updates)
        finally:
            self._channel.stopping = False

    def _model(self) -> tuple[Layout, Snapshot, str]:
        if self._pulled is None:
            self.pull()
        assert self._pulled is not None
        return self._pulled[1:]

    def _read_model(self, answer: httpx.Response) -> tuple[str, Layout, Snapshot, str]:
        if answer.status_code == 304 and self._pulled is not None:
            return self._pulled
        if answer.status_code != 200:
            raise unexpected(answer)
        try:
            layout, snapshot, run = wire.decode_snapshot(answer.content)
        except RunError as error:
            raise Trouble("garbled", str(error)) from error
        for vector in (snapshot.params, *snapshot.extras.values()):
            vector.flags.writeable = False
        return answer.headers.get("ETag", ""), layout, snapshot, run

    def _spooled(self, finished: Finished) -> str | None:
        if self.spool is None:
            return None
        try:
            return self.spool.put(finished)
        except OSError as error:  # a full disk: better sent from memory than not at all
            say("spool_failed", logging.WARNING, id=finished.id, reason=str(error))
            return None

    def _resend(self, place: str, retry: Retry) -> str:
        assert self.spool is not None
        finished = self.spool.get(place)
        if finished is None:
            return "damaged"
        self.pull(retry=retry)
        if finished.run != self.run_id:  # its versions are those of another model
            self.spool.remove(place)
            outcome = "other_run"
        else:
            answer = self._send(finished, place, retry)
            outcome = answer.code if isinstance(answer, Refused) else answer.status
        say("resend", status=outcome, id=finished.id, base_version=finished.base_version)
        return outcome

    def _send(self, finished: Finished, place: str | None, retry: Retry) -> Answer | Refused:
        headers = {"Content-Type": "application/octet-stream"}
        outcome = self._channel.ask(
            PUSH, read_answer, retry=retry, headers=headers, content=finished.body
        )
        if isinstance(outcome, Answer) and finished.kept:
            self._keep(finished)
        if place is not None and self.spool is not None:
            self.spool.remove(place)  # last: what is kept must not be lost with it
        return outcome

    def _keep(self, finished: Finished) -> None:
        self._kept = (finished.run, finished.kept)
        if self.spool is not None:
            try:
                self.spool.keep(finished.run, finished.kept)
            except OSError as error:
                say("spool_failed", logging.WARNING, id=finished.id, reason=str(error))


def _proof(token: str | None, token_file: str | os.PathLike[str] | None) -> Token | None:
    if token is not None and token_file is not None:
        raise ConfigError("Give the token or the file that holds it, not both.")
    if token_file is not None:
        token = Path(token_file).read_text(encoding="utf-8").strip()
    return None if token is None else Token(token)


def _name(proof: Token | None, name: str | None) -> str | None:
    if proof is None:
        if name is not None and not _NAME.fullmatch(name):
            raise ConfigError(
                f"A worker's name has 1 to 64 letters, digits, '_', '.', '@' or '-', got {name!r}."
            )
        return name
    if name not in (None, proof.worker):
        raise ConfigError(f"The token is that of {proof.worker!r}, not of {name!r}.")
    return proof.worker
