"""How arrivals depend on the server: what it refuses, when it steps, whom it lets work."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, final

import numpy as np

from anarchic.core.validation import check_choice, check_kinds
from anarchic.errors import ConfigError

Picks = Literal["random", "free", "cohort"]
PICKS: tuple[Picks, ...] = ("random", "free", "cohort")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Coupling:
    """How arrivals depend on the server. Each setting works alone and with the others.

    ``max_concurrent``: at most N workers work at once. Others wait in the order in which they
    came, and pull when it is their turn. A visit that is lost makes room when it fails.

    ``refuse_staleness``: the server refuses updates with a greater staleness. They make no version
    and count for none. After a refusal a worker pulls the newest version and works again at once,
    at most ``retries`` times in a row; then, or with 0 retries, its work is dropped and it idles.
    With many retries this is Ringmaster ASGD, where a worker always starts anew; its threshold R,
    which a delay must be below, is ``refuse_staleness + 1``.

    ``step_every_s``: at each multiple of this time the server steps with the updates that have come
    since its last step. If none has come, it does nothing and the version stays. The m-th update
    still makes a step; with an m that is never reached only the timer does.

    ``server_picks``: workers do not come by themselves; the server keeps ``max_concurrent`` jobs
    (m if not given) under way. Idle times do not matter. ``"random"``: a job that ends is
    followed by one for any worker, each equally likely, also one at work; it then works on one
    after the other, each from the version of the time at which it was picked (Koloskova, Stich,
    Jaggi, "Sharper Convergence Guarantees for Asynchronous SGD for Distributed and Federated
    Learning", NeurIPS 2022, Algorithm 2 with uniform sampling). ``"free"``: only workers without a
    job are picked, as in FedBuff's experiments. ``"cohort"``: all jobs begin together, from the
    newest version, with different workers; after the step whoever still works is stopped.

    ``skip_unchanged``: a worker that has already sent an update from the newest version does not
    work but idles again. One without idle time waits for the next version.
    """

    max_concurrent: int | None = None
    refuse_staleness: int | None = None
    retries: int = 0
    step_every_s: float | None = None
    server_picks: Picks | None = None
    skip_unchanged: bool = False

    def __post_init__(self) -> None:
        check_kinds(self)
        for name, least in (("max_concurrent", 1), ("refuse_staleness", 0), ("retries", 0)):
            if (value := getattr(self, name)) is not None and value < least:
                raise ConfigError(f"Coupling needs {name} >= {least}, got {value}.")
        if self.step_every_s is not None and not 0 < self.step_every_s < np.inf:
            raise ConfigError(f"Coupling needs 0 < step_every_s < inf, got {self.step_every_s}.")
        if self.server_picks is not None:
            check_choice("server_picks", self.server_picks, PICKS)
        if self.retries and self.refuse_staleness is None:
            raise ConfigError(
                f"retries={self.retries} are for refused updates: give refuse_staleness too."
            )
        if self.server_picks and (self.retries or self.skip_unchanged):
            raise ConfigError(
                "A server that picks decides who works next: leave out retries and skip_unchanged."
            )

    @property
    def depends(self) -> bool:
        """Whether anything depends on the server."""
        return any(getattr(self, each.name) != each.default for each in fields(self))

    def jobs(self, m: int) -> int:
        """How many jobs a server that picks keeps under way."""
        return m if self.max_concurrent is None else self.max_concurrent

    def check(self, workers: int, m: int) -> None:
        """Refuse what could never make a step."""
        jobs = self.jobs(m)
        if self.server_picks in ("free", "cohort") and jobs > workers:
            raise ConfigError(
                f"A server that picks {self.server_picks!r} gives {jobs} jobs to different "
                f"workers, but there are {workers}: lower max_concurrent or m."
            )
        if self.server_picks == "cohort" and jobs < m and self.step_every_s is None:
            raise ConfigError(
                f"A cohort of {jobs} never sends m={m} updates: raise max_concurrent or lower m."
            )
        if self.skip_unchanged and workers < m and self.step_every_s is None:
            raise ConfigError(
                f"With skip_unchanged each of {workers} workers sends one update per version, so "
                f"m={m} never arrive: lower m."
            )
