"""Which updates are set aside, for good, when no version can be made with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anarchic.core.types import Update
from anarchic.server.fold import Folding
from anarchic.server.pending import Pending

BLAMED_AFTER = 3  # times that the rule fails on an update before it is set aside
MOST_BLAMED = 10  # times without a version between; then the rule is at fault: keep the others


@dataclass(frozen=True)
class Suspects:
    """Updates to set aside, and why."""

    keys: list[tuple[int, str]]
    reason: str
    named: list[dict[str, Any]]

    def told(self, version: int) -> dict[str, Any]:
        """The facts for the log."""
        facts = {"version": version, "count": len(self.named), "updates": self.named[:100]}
        return {"reason": self.reason, **facts}


class Blame:
    """Finds the updates on which the rule fails, and those with which a step diverges.

    It changes nothing: whoever asks goes back to the last version without what was found.
    """

    def __init__(self, pending: Pending, folding: Folding) -> None:
        self._pending, self._folding = pending, folding
        self._failed_on = (-1, 0)  # the update on which the rule failed last, and how often
        self._blamed = 0  # how often updates were found for that since the last version

    def published(self) -> None:
        """There is a new version."""
        self._blamed = 0

    def failed(self, seq: int) -> bool:
        """Note that the rule failed on an update; whether that was once too often."""
        last, times = self._failed_on
        times = times + 1 if seq == last else 1
        self._failed_on = (seq, times)
        return times >= BLAMED_AFTER and self._blamed < MOST_BLAMED

    def after_failure(self, seq: int, update: Update, error: Exception) -> Suspects:
        """This update.

        If the rule fails on another before there is a version, the fault lies with what it had
        taken before, and all of that goes too.
        """
        keys = [*(self._folding.unpublished if self._blamed else []), (seq, update.worker)]
        ids = [self._pending.read(*key).update.id for key in keys[:-1]] + [update.id]
        self._blamed += 1
        named = [{"worker": worker, "id": id} for (_, worker), id in zip(keys, ids, strict=True)]
        return Suspects(keys, f"The rule failed {BLAMED_AFTER} times: {error!r}", named)

    def longest(self, reason: str) -> Suspects:
        """Those since the last version that are at least half as long as the longest.

        Harmless ones may be among them. Each pass finds at least one, so it ends.
        """
        lengths = []  # not with the bodies: together they may be larger than the memory
        for key in self._folding.unpublished:
            update = self._pending.read(*key).update
            lengths.append((self._folding.length(update), key, update.id))
        longest = max(length for length, _, _ in lengths)
        aside = [each for each in lengths if each[0] >= longest / 2]
        named = [{"worker": key[1], "id": id, "length": length} for length, key, id in aside]
        return Suspects([key for _, key, _ in aside], reason, named)
