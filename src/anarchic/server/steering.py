"""What operators have decided so far, as the parts of one server read it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, final

from anarchic.core.factory import RuleSettings
from anarchic.core.rule import Rule
from anarchic.core.types import Terms
from anarchic.server.commands import (
    Condition,
    commands,
    condition,
    end_at,
    end_of,
    is_withdrawn,
    mark_of,
    rules_after,
    withdrawn,
)
from anarchic.server.log import Log
from anarchic.server.records import Publication, StoredRun
from anarchic.server.refusals import Refusal
from anarchic.server.runs import stored_layout, stored_rules, stored_terms
from anarchic.server.settings import served_rule, waits
from anarchic.server.store import Store

PAUSED_S = 5.0  # after which workers of a paused run come again


@final
class Steering:
    """What the commands of operators leave a run in, as the parts of one server read it.

    ``read`` is called by one thread; ``changed`` is called in it with a new rule. The run ends
    with version ``max_versions``.
    """

    def __init__(
        self, store: Store, run: StoredRun, changed: Callable[[Rule[Any]], None] | None = None,
        max_versions: int | None = None,
    ) -> None:  # fmt: skip
        self._store, self._run, self.max_versions = store, run, max_versions
        self._changed: Callable[[Rule[Any]], None] | None = None
        self._layout, self._mark = stored_layout(run), (-1, -1)
        self._seen: Hashable = None  # the store, when nothing waited in it
        self.condition: Condition = "running"
        self.withdrawn: list[tuple[int, int]] = []
        self._last: int | None = None  # the version with which it has ended, if that was asked for
        self.settled = 0  # commands that were applied or refused
        self.rules = stored_rules(run)
        self.rule = served_rule(self.rules, self._layout)
        self.read()
        self._changed = changed  # only now: whoever listens asks for the first rule itself

    def tell(self, log: Log, run: str, version: int) -> None:
        """Say at the start where the run stands, and whom its rule waits for."""
        log("serving", run=run, version=version, state=self.condition)
        if told := waits(self.rule):
            log("rule_waits", message=told)

    @property
    def terms(self) -> Terms:
        """What workers are told about what becomes of their updates."""
        return stored_terms(self._run, self.rule)

    @property
    def paused(self) -> bool:
        return self.condition == "paused"

    @property
    def ended(self) -> bool:
        return self.condition == "ended"

    def is_last(self, version: int) -> bool:
        """Whether no step follows this version, whatever waits."""
        last = self.max_versions if self._last is None else self._last
        return last is not None and version >= last

    def must_end(self, version: int) -> bool:
        """Whether the run has come to its last version, and the store does not say so yet."""
        return not self.ended and self.is_last(version)

    def ending(self, publication: Publication, now_s: float) -> Publication:
        """The publication, which ends the run if it is of the last version."""
        version = publication.version
        if not self.must_end(version):
            return publication
        told = f"Version {version} is the last of --max-versions {self.max_versions}."
        return replace(publication, also=end_at(self._store, version, told, now_s=now_s))

    def read(self) -> bool:
        """Read what was settled; whether anything waits to be. Costs little if nothing is new."""
        seen = self._store.mark()
        if seen is not None and seen == self._seen:
            return False  # what waits is settled by a write
        now = mark_of(self._store)
        if now != self._mark:
            known = commands(self._store)
            self.withdrawn, self.condition = withdrawn(known), condition(known)
            end = end_of(known)
            self._last = None if end is None else end.arguments.get("last")
            self.settled = sum(command.outcome != "waiting" for command in known)
            self._follow(rules_after(stored_rules(self._run), known))
            self._mark = now
        waits = now[0] > now[1]
        self._seen = None if waits else seen
        return waits

    def _follow(self, rules: RuleSettings) -> None:
        if rules != self.rules:
            self.rules, self.rule = rules, served_rule(rules, self._layout)
            if self._changed is not None:
                self._changed(self.rule)

    def check_open(self) -> None:
        """Refuse updates while the run is paused, and after its end."""
        if self.condition == "paused":
            told, remedy = "The operator has paused the run.", "Keep the update and send it later."
            raise Refusal(503, "paused", told, remedy, PAUSED_S)
        if self.condition == "ended":
            told = "The run has ended: it takes no more updates."
            raise Refusal(410, "run_ended", told, "Stop; the model can still be pulled.")

    def check_base(self, version: int) -> None:
        """Refuse what builds on a version that was rolled back."""
        if self.withdrawn and is_withdrawn(self.withdrawn, version):
            told = f"Version {version} was withdrawn: the operator has rolled the run back."
            raise Refusal(409, "withdrawn", told, "Pull the model and train from what you get.")
