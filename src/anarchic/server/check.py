"""Whether a body is an update of this run that may be accepted."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anarchic import wire
from anarchic.core.checking import CheckedUpdate, check
from anarchic.core.rule import Rule
from anarchic.core.types import Layout, Vector
from anarchic.errors import NotFinite
from anarchic.server.published import PublishedModels
from anarchic.server.records import NewUpdate
from anarchic.server.refusals import Refusal
from anarchic.server.settings import Limits
from anarchic.wire import Decoded


@dataclass(frozen=True, slots=True)
class SubmittedUpdate:
    """An update that was checked and may be stored and folded."""

    new: NewUpdate
    decoded: Decoded


class UpdateCheck:
    """Reads updates and refuses those that the rule could not fold or the limits forbid."""

    def __init__(
        self, layout: Layout, rule: Rule[Any], published: PublishedModels, limits: Limits
    ) -> None:
        self._layout, self._rule = layout, rule
        self._published, self._limits = published, limits
        wide = "F64" in layout.dtypes
        zero = np.float64(0) if wide else np.float32(0)
        self._like: Vector = np.broadcast_to(zero, (layout.dim,))  # takes no memory

    @property
    def most_bytes(self) -> int:
        """The size of the largest body that can be an update of this run."""
        return wire.most_body_bytes(self._layout, self._published.newest.extras)

    def check(self, body: bytearray, worker: str | None) -> SubmittedUpdate:
        """The update in a body, or a refusal. Without ``worker`` the update names its sender."""
        newest = self._published.newest
        decoded = wire.decode_update(body, self._layout, extras=newest.extras, worker=worker)
        update = decoded.update
        if decoded.run not in (None, newest.run):
            raise Refusal(
                409,
                "unknown_version",
                "The update starts from a version of another run.",
                "Pull the model and train from what you get.",
            )
        seen = check(
            update,
            params=self._like,
            version=max(newest.version, update.base_version),
            oldest=max(0, newest.version - self._limits.max_staleness),
            extras=newest.extras,
            measured=True,
        )
        self._check_length(seen)
        new = NewUpdate(
            worker=update.worker,
            id=update.id,
            digest=hashlib.sha256(body).digest(),
            base_version=update.base_version,
            local_steps=update.local_steps,
            local_lr=update.local_lr,
            samples=update.samples,
            norm=update.local_lr * (seen.norm or 0.0),
            received_s=time.time(),
            body=body,
        )
        return SubmittedUpdate(new, replace(decoded, update=seen))

    def _check_length(self, seen: CheckedUpdate) -> None:
        most, longest = self._limits.max_norm, seen.norm or 0.0
        if seen.extras:  # what a local rule shares is as long as a direction, and stays
            longest = max(longest, seen.longest)
        length = self._rule.scale(seen.local_lr, seen.local_steps) * longest
        if most is not None and length > most:
            raise NotFinite(
                f"The update of worker {seen.worker!r} has norm {length:g}; this server takes "
                f"norms up to {most:g}."
            )

    def identity(self, body: bytearray, worker: str | None) -> tuple[str, str, bytes]:
        """Worker, id and SHA-256 of an update, which name it in the store."""
        extras = self._published.newest.extras
        update = wire.decode_update(body, self._layout, extras=extras, worker=worker).update
        return update.worker, update.id, hashlib.sha256(body).digest()
