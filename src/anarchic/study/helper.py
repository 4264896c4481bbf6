"""A helper process: ``python -m anarchic.study.helper`` trains batches for another process.

It reads a batch per line of JSON and writes its results as a line of JSON, and in between what its
runs have reached. It ends with its standard input, and so with the process that started it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Queue
from typing import IO, Any

from anarchic.errors import AnarchicError
from anarchic.sim.run import Progress
from anarchic.study.trainer import Trainer, from_record, named

TELL_S = 0.5  # between two lines on what was reached


@dataclass
class Teller:
    """Writes what its runs have reached, now and then."""

    to: IO[str]
    _said_at: float = 0.0
    _reached: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __call__(self, name: str, at: Progress) -> None:
        self._reached[name] = at.round, at.rounds
        if time.monotonic() - self._said_at >= TELL_S:
            self.say(self._reached)
            self._said_at, self._reached = time.monotonic(), {}

    def say(self, found: Mapping[str, Any]) -> None:
        self.to.write(json.dumps(found) + "\n")
        self.to.flush()


def main() -> None:
    """Train a batch per line until standard input ends."""
    teller = Teller(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # what anybody prints is no result
    trainer, lines = Trainer(watch=teller), Queue[str]()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(1)  # whoever asked is gone: nobody waits for what is being computed

    threading.Thread(target=read, daemon=True).start()
    while True:
        asked = json.loads(lines.get())
        trainer.out = None if asked["out"] is None else Path(asked["out"])
        try:
            results = trainer([from_record(record) for record in asked["jobs"]])
        except Exception as error:  # the process that asked notes it
            known = isinstance(error, AnarchicError)
            teller.say({"error": str(error) if known else named(error)})
        else:
            teller.say({"results": [asdict(result) for result in results]})


if __name__ == "__main__":
    main()
