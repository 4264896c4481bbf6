"""The parts of a server that not every run has: who evaluates, hears of versions and compacts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from anarchic.server.callbacks import Callbacks
from anarchic.server.compact import Compactor, compactor_of
from anarchic.server.evaluate import Evaluator, judging
from anarchic.server.keeping import Keeper
from anarchic.server.log import Log
from anarchic.server.picture import Theory
from anarchic.server.records import StoredRun
from anarchic.server.runs import stored_layout
from anarchic.server.settings import RunSettings, ServerSettings
from anarchic.server.store import Store


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalParts:
    """Each is None where the operator has not asked for it."""

    evaluator: Evaluator | None = None
    callbacks: Callbacks | None = None
    keeper: Keeper | None = None
    compactor: Compactor | None = None
    theory: Theory | None = None  # for the live page

    def notes(self) -> list[str]:
        """What an operator should know."""
        return [] if self.keeper is None else self.keeper.notes()

    def stop(self) -> None:
        """Finish what they were told."""
        for part in (self.evaluator, self.callbacks):
            if part is not None:
                part.stop()


def optional_parts(
    store: Store, stored: StoredRun, run: RunSettings, settings: ServerSettings, log: Log, *,
    callbacks: Callbacks | None = None, theory: Theory | None = None,
) -> OptionalParts:  # fmt: skip
    """Those that the settings ask for, of the run in a store."""
    compactor = compactor_of(store, run, settings, log)
    judge = judging(run, stored.settings, stored_layout(stored))
    if judge is not None and stored.settings.get("local_buffers"):
        told = "workers keep their own buffers, and a judge has only those it was made with"
        told = f"Evaluations are of a model that no worker has: {told}."
        log("model_warning", level="warning", message=told)
    keeper = Keeper(store, log, best=run.best, target=run.goal)
    evaluator = None if judge is None else Evaluator(judge, store, log, callbacks, keeper)
    return OptionalParts(
        evaluator=evaluator, callbacks=callbacks, keeper=keeper, compactor=compactor, theory=theory
    )
