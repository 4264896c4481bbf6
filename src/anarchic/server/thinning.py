"""Which stored versions may go when a new one comes: few are kept of what is long ago.

The newest ``history`` stay. Of those ``history`` to ``2 * history`` versions back every second one
stays, of those up to ``4 * history`` back every fourth, and so on: about ``history / 2`` per
doubling of the age. The very first one that is stored stays too. If they take more bytes than they
may, the older ones are thinned further, where they stand closest for their age.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

from sqlalchemy import Connection, delete, func, select

from anarchic.server import tables as t

_M = t.models.c
KEEP_ALL = 10**12  # a history with which nothing is thinned: that is left to the next server


class Stored(NamedTuple):
    """A stored version that is not kept for ever."""

    version: int
    size: int  # bytes


def superfluous(stored: Sequence[Stored], *, history: int, most_bytes: int) -> set[int]:
    """The versions to drop, of those that are ``stored`` (the oldest first)."""
    if len(stored) <= history:
        return set()
    newest, older = stored[-1].version, list(stored[:-history])
    above, left = stored[-history].version, []
    for place in range(len(older) - 1, -1, -1):  # the gap that each would leave
        each = older[place]
        spacing = 1 << ((newest - each.version) // history).bit_length()
        if place and above - older[place - 1].version <= spacing:
            continue
        left.append(each)
        above = each.version
    left.reverse()
    room = most_bytes - sum(each.size for each in stored[-history:])
    size = sum(each.size for each in left)
    while left and size > room:
        size -= left.pop(_closest(left, stored[-history].version, newest)).size
    return {each.version for each in older} - {each.version for each in left}


def _closest(older: Sequence[Stored], above: int, newest: int) -> int:
    """The place of the version whose neighbours are closest to each other, for its age; the oldest
    comes last."""
    edges = [*(each.version for each in older), above]
    places = range(1, len(older))
    return min(places, key=lambda i: (edges[i + 1] - edges[i - 1]) / (newest - edges[i]), default=0)


@final
class Versions:
    """The versions of a store that may be dropped, known without reading them at every step."""

    def __init__(self, *, history: int, most_bytes: int, every: int | None) -> None:
        self.history, self.most_bytes, self.every = history, most_bytes, every
        self._stored: list[Stored] = []
        self._known: tuple[int, int] | None = None  # epoch and version of which ``_stored`` tells
        self._forgotten = False

    def forget(self) -> None:
        """Somebody changed which versions are kept: read them again before the next step."""
        self._forgotten = True

    def reason(self, previous: int, version: int) -> str | None:
        """Why a new version is kept for ever. Not every number is published: the first one at or
        after each multiple counts."""
        every = self.every
        if every is None or version // every == previous // every:
            return None
        return f"every {every}"

    def thin(
        self, connection: Connection, *, epoch: int, previous: int, new: Stored, keep_first: bool
    ) -> None:
        """Drop what need not stay beside a ``new`` version, in the transaction that stores it.

        If that fails, ``previous`` does not match next time, and all is read again.
        """
        if self._forgotten or self._known != (epoch, previous):
            self._forgotten = False
            size = func.length(_M.body)  # which neither database reads the body for
            found = select(_M.version, size).where(_M.kept.is_(None)).order_by(_M.version)
            every = (Stored(*row) for row in connection.execute(found))
            self._stored = [each for each in every if each.version != new.version]
            if keep_first:  # a replay begins with it
                self._stored = [each for each in self._stored if each.version > 0]
        if self.reason(previous, new.version) is None:
            self._stored.append(new)
        gone = superfluous(self._stored, history=self.history, most_bytes=self.most_bytes)
        if gone:
            away = _M.version.in_(sorted(gone)) & _M.kept.is_(None)  # kept by another meanwhile
            connection.execute(delete(t.models).where(away))
            self._stored = [each for each in self._stored if each.version not in gone]
        self._known = (epoch, new.version)
