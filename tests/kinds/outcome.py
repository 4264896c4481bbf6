"""What became of a kind of model or loop, and how a test of another library tells it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

TOLD = "ANARCHIC_KINDS"  # names the file in which ``learnt`` writes its numbers


@dataclass(frozen=True)
class Outcome:
    """What became of a kind in one world; ``refused`` is the sentence where it does not run."""

    before: float = 0.0
    after: float = 0.0
    bound: float = 0.0
    by_loss: bool = False
    slower: float | None = None  # than torch's own loop, per local step
    refused: str | None = None
    alone: bool = False  # one visit after another, though the backend is that for batches

    @property
    def learnt(self) -> bool:
        """Whether the model reaches a bound that it missed before."""
        if self.by_loss:
            return self.before > self.bound > self.after
        return self.before < self.bound < self.after


def learnt(before: float, after: float, bound: float, *, by_loss: bool = False) -> None:
    """Require that a model learns; write the numbers for docs/models.md if that is asked for."""
    outcome = Outcome(float(before), float(after), bound, by_loss)
    assert outcome.learnt, outcome
    if path := os.environ.get(TOLD):
        Path(path).write_text(json.dumps(asdict(outcome)))
