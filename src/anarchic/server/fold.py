"""Folding: accepted updates become the rule's state, and the state becomes versions.

Updates are folded as they come, so the memory needed is the rule's. A publication holds the model,
so the stored state has no parameters; nor has it arrays of zeros, which is what a buffer is right
after a step; nor rows that did not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, nan
from typing import Any

import numpy as np

from anarchic import wire
from anarchic.core.arrays import all_finite, norms
from anarchic.core.buffers import trained_norm
from anarchic.core.rule import Rule
from anarchic.core.saving import pack, unpack
from anarchic.core.types import Layout, Snapshot, Terms, Update, Vector
from anarchic.errors import AnarchicError, Diverged, StoreCorrupt, UpdateRefused
from anarchic.server.access import Access
from anarchic.server.clock import SYSTEM, Clock
from anarchic.server.log import Log
from anarchic.server.published import PublishedModel
from anarchic.server.records import SET_ASIDE, FoldedUpdate, Publication
from anarchic.wire import Decoded

PIECE = 1 << 16  # numbers that are looked at together


class Folding:
    """Holds the rule's state: folds updates into it, and says what to publish of it.

    Used by one thread. Rows that the rule keeps of workers whose tokens were revoked are dropped
    where the next round begins.
    """

    def __init__(
        self,
        rule: Rule[Any],
        layout: Layout,
        run: str,
        access: Access,
        log: Log,
        clock: Clock = SYSTEM,
        *,
        terms: Terms | None = None,
    ) -> None:
        self._rule, self._layout, self._run = rule, layout, run
        self._terms = terms or Terms()
        self._access, self._log, self._clock = access, log, clock
        self._first: int | None = None  # updates folded until the last publication
        self._state: Any = None
        self._oldest_s: float | None = None  # when the oldest update of the buffer was folded
        self._folded: list[tuple[int, int, str]] = []  # (seq, version, worker) since publishing
        self._losses: list[float] = []  # reported with them
        self.clipped = 0  # of them, by the guard
        self.told: list[FoldedUpdate] = []  # the same updates, for the log and what is counted
        self._dropped: list[tuple[int, str]] = []  # (version, worker) since publishing
        self._epoch: str | None = None  # in which versions are published
        self._known_revoked: frozenset[str] | None = None
        self._suspects: set[str] = set()  # revoked workers that may have rows
        # Vectors that were not finite in a store which an earlier version of this server wrote.
        self._excused: frozenset[str] = frozenset()

    @property
    def version(self) -> int:
        version: int = self._state.version
        return version

    @property
    def extras(self) -> frozenset[str]:
        """Names of the vectors that travel beside the model."""
        return frozenset(self._state.extras)

    @property
    def remaining(self) -> int:
        """Updates until the next step."""
        return self._rule.remaining(self._state)

    def follow(self, rule: Rule[Any], terms: Terms) -> None:
        """Fold with these settings from the next ``load`` on, which must come first."""
        self._rule, self._terms = rule, terms

    def load(
        self,
        body: bytes,
        state: bytes,
        rows: Mapping[str, bytes],
        *,
        epoch: str | None = None,
        first: int | None = None,
    ) -> None:
        """Go back to a published version; what was folded since then must be folded again.

        What is published from now on carries the name of ``epoch``; ``first`` is how many updates
        were folded until that version.
        """
        self._epoch, self._first = epoch, first
        _, snapshot, _ = wire.decode_snapshot(body)
        self._state = decode_state(self._rule, snapshot, state, rows)
        self._known_revoked = None
        self._clear()
        self._excused = frozenset(not_finite(self._rule, self._state))

    def fold(self, seq: int, decoded: Decoded) -> bool:
        """Fold one update; whether it made a step."""
        self._drop_revoked()
        before, clipped, update = self.version, self._clipped_so_far(), decoded.update
        try:
            with np.errstate(all="ignore"):  # looked at before anything is published
                self._state = self._rule.receive(self._state, update)
        except UpdateRefused as error:  # it was checked when it was accepted; go on all the same
            self._log("refused_late", worker=update.worker, reason=str(error))
        else:
            if decoded.loss is not None:
                self._losses.append(decoded.loss)
            weight = 1.0
            if self._clipped_so_far() > clipped:
                weight = self._tell_clipped(update)
            late = before - update.base_version
            self.told.append(FoldedUpdate(seq, update.worker, late, decoded.loss, weight))
        if update.worker in self._access.revoked:  # what it sent before counts in one step only
            self._suspects.add(update.worker)
        self._folded.append((seq, before + 1, update.worker))
        if self._oldest_s is None:
            self._oldest_s = self._clock.monotonic()
        return self.version > before

    def _clipped_so_far(self) -> int:
        guard = self._rule.guard_record(self._state)
        return 0 if guard is None else guard.clipped

    def _tell_clipped(self, update: Update) -> float:
        """Log it; the weight that the guard gave it."""
        self.clipped += 1
        guard = self._rule.guard_record(self._state)
        assert guard is not None
        facts = {"worker": update.worker, "id": update.id}
        self._log("clipped", **facts, length=guard.length, bound=guard.bound)
        return guard.last_weight

    def _drop_revoked(self) -> None:
        """Only where a round begins, which is a place that a replay finds again."""
        revoked = self._access.revoked
        if revoked is not self._known_revoked:
            self._known_revoked, self._suspects = revoked, set(revoked)
        if not self._suspects or self.remaining < self._rule.m:
            return
        suspects, self._suspects = self._suspects, set()
        for worker in sorted(suspects):
            if self._rule.forget(self._state, worker):
                self._dropped.append((self.version, worker))

    def waited_s(self) -> float:
        """How long the oldest update has waited for a step; 0 where none waits."""
        if self._oldest_s is None or not self._folded or self.remaining >= self._rule.m:
            return 0.0
        return self._clock.monotonic() - self._oldest_s

    def flush(self) -> None:
        """Step with the updates that are there, though they are fewer than m."""
        with np.errstate(all="ignore"):
            self._state = self._rule.flush(self._state)

    def publication(self, epoch: int, previous: int) -> tuple[Publication, PublishedModel]:
        """What to make durable of the current state, and the version that workers then pull.

        ``Diverged`` where that is not finite. O(d).
        """
        wrong = [name for name in not_finite(self._rule, self._state) if name not in self._excused]
        if wrong:
            raise Diverged(
                f"The step would leave numbers in {', '.join(wrong)} that are not finite."
            )
        mean = sum(self._losses) / len(self._losses) if self._losses else nan
        loss = mean if isfinite(mean) else None  # ``fmean`` would raise what any worker can cause
        params, extras = self._state.params, self._state.extras
        snapshot = Snapshot(self.version, params, extras, terms=self._terms)
        body = wire.encode_snapshot(self._layout, snapshot, self._run, loss=loss, epoch=self._epoch)
        changed, removed = changed_rows(self._rule, self._state)
        publication = Publication(
            epoch=epoch,
            previous=previous,
            version=self.version,
            folded=[(seq, version) for seq, version, _ in self._folded],
            model=body,
            state=encode_state(self._rule, self._state, self._layout),
            rows=changed,
            forgotten=removed,
            revoked=[*self._dropped],
            first=self._first,
            clipped=[(u.seq, u.weight) for u in self.told if u.weight < 1],
        )
        model = PublishedModel(self._run, self.version, body, loss, self.extras, self._epoch)
        return publication, model

    def pass_over(self, seq: int, worker: str) -> None:
        """Do not fold an update; the next publication says that no version holds it."""
        self._folded.append((seq, SET_ASIDE, worker))

    @property
    def passed_over(self) -> list[tuple[int, str]]:
        """(seq, worker) of those updates that no publication has named yet."""
        return [(seq, worker) for seq, version, worker in self._folded if version == SET_ASIDE]

    @property
    def unpublished(self) -> list[tuple[int, str]]:
        """(seq, worker) of the updates that were folded and are in no published version."""
        return [(seq, worker) for seq, version, worker in self._folded if version != SET_ASIDE]

    def set_aside(self, updates: Sequence[tuple[int, str]]) -> None:
        """Right after ``load``: let the next publication say that no version holds these."""
        self._folded = [(seq, SET_ASIDE, worker) for seq, worker in updates]

    def length(self, update: Update) -> float:
        """How far a rule would go with an update, about."""
        beside = (float(norms(vector[None])[0]) for vector in update.extras.values())
        longest = max(trained_norm(self._layout, update), *beside, 0.0)
        return self._rule.scale(update.local_lr, update.local_steps) * longest

    def published(self) -> list[tuple[int, str]]:
        """The publication is durable; (seq, worker) of the updates in it."""
        mark_stored(self._rule, self._state)
        folded = [(seq, worker) for seq, _, worker in self._folded]
        if self._first is not None:
            self._first += len(folded)
        self._clear()
        return folded

    def _clear(self) -> None:
        self._folded.clear()
        self._losses.clear()
        self.clipped, self.told = 0, []
        self._dropped.clear()
        self._oldest_s = None


def not_finite(rule: Rule[Any], state: Any) -> list[str]:
    """Names of the vectors like the model, in a state, that hold NaN or infinity.

    Rows are not looked at: what was folded of them is in the sum, and so in the parameters.
    """
    arrays, _ = pack(state, apart=list(rule.rows(state).values()))
    vectors = {name: a for name, a in arrays.items() if a.shape == state.params.shape}
    return [name for name, vector in vectors.items() if not _is_finite(vector)]


def _is_finite(vector: Vector) -> bool:
    """In pieces that fit in a cache: one answer per number would cost as much memory again."""
    return all(all_finite(vector[at : at + PIECE]) for at in range(0, len(vector), PIECE))


def encode_state(rule: Rule[Any], state: Any, layout: Layout | None = None) -> bytes:
    """What is not in the model, nor zero, nor a row."""
    parts = rule.rows(state)
    arrays, numbers = pack(state, apart=list(parts.values()))
    for name, rows in parts.items():
        numbers |= {f"{name}.workers": len(rows), f"{name}.place": rows.place}
    same = [name for name, array in arrays.items() if array is state.params]
    record = {"numbers": numbers, "params": same}
    if layout is not None and layout.buffers:  # the rule inside holds the model without them
        without = _without_buffers(state.params, layout)
        record["without_buffers"] = [n for n, a in arrays.items() if _same_bits(a, without)]
    held = {name for names in (same, record.get("without_buffers", ())) for name in names}
    record["zero"] = [n for n, array in arrays.items() if n not in held and not array.any()]
    kept = {n: array for n, array in arrays.items() if n not in (*held, *record["zero"])}
    return wire.encode_state(kept, record)


def _without_buffers(params: Vector, layout: Layout) -> Vector:
    without = params.copy()
    without[layout.buffer_places] = 0
    return without


def _same_bits(array: Vector, like: Vector) -> bool:
    if (array.shape, array.dtype) != (like.shape, like.dtype):
        return False
    bits = f"u{array.itemsize}"
    return np.array_equal(array.view(bits), like.view(bits))


def decode_state(
    rule: Rule[Any], snapshot: Snapshot, state: bytes, rows: Mapping[str, bytes]
) -> Any:
    """The state that ``encode_state`` was given, at the version of ``snapshot``."""
    try:
        arrays, record = wire.decode_state(state)
        numbers = record["numbers"]
        template = rule.init(snapshot.params)
        parts = list(rule.rows(template).values())
        blank, _ = pack(template, apart=parts)
        arrays |= dict.fromkeys(record["params"], snapshot.params)
        if names := record.get("without_buffers"):
            assert snapshot.layout is not None, "it was decoded"
            without = _without_buffers(snapshot.params, snapshot.layout)
            arrays |= {name: without.copy() for name in names}
        arrays |= {name: np.zeros_like(blank[name]) for name in record["zero"]}
        found = unpack(template, arrays, numbers, apart=parts)
        _restore_rows(rule, found, numbers, rows)
    except (AnarchicError, KeyError, ValueError) as error:
        raise StoreCorrupt(
            f"The state in the store cannot be read ({error}): restore the store from a copy."
        ) from error
    if found.version != snapshot.version:
        raise StoreCorrupt(
            f"The store has a state of version {found.version} but a model of version "
            f"{snapshot.version}: restore the store from a copy."
        )
    return found


def _restore_rows(
    rule: Rule[Any], state: Any, numbers: Mapping[str, Any], stored: Mapping[str, bytes]
) -> None:
    parts = rule.rows(state)
    for name, rows in parts.items():
        start = _key(parts, name, "")
        own = {key[len(start) :]: row for key, row in stored.items() if key.startswith(start)}
        if len(own) != numbers[f"{name}.workers"]:
            raise StoreCorrupt(
                f"The state counts on {numbers[f'{name}.workers']} rows of {name}, and the store "
                f"has {len(own)}"
            )
        rows.restore(own, numbers[f"{name}.place"])


def changed_rows(rule: Rule[Any], state: Any) -> tuple[dict[str, bytes], list[str]]:
    """The rows that the store has not seen, and those that it should drop, by their keys there."""
    parts = rule.rows(state)
    changed: dict[str, bytes] = {}
    removed: list[str] = []
    for name, rows in parts.items():
        put, gone = rows.changes()
        changed |= {_key(parts, name, worker): row for worker, row in put.items()}
        removed += [_key(parts, name, worker) for worker in gone]
    return changed, removed


def mark_stored(rule: Rule[Any], state: Any) -> None:
    """The store holds what ``changed_rows`` named."""
    for rows in rule.rows(state).values():
        rows.mark_stored()


def _key(parts: Mapping[str, Any], name: str, worker: str) -> str:
    """Of a row in the store: the worker, after the name of the part where there are several."""
    return worker if len(parts) == 1 else f"{name}:{worker}"
