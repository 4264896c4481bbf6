"""The newest versions of a model, for rules that need the model a worker started from.

They are kept in ``WorkerRows`` by version instead of by worker: a server then stores each version
once, and not all of them with every version.
"""

from __future__ import annotations

from anarchic.core.rows import WorkerRows
from anarchic.core.types import Vector
from anarchic.errors import ConfigError


def check_history(rule: str, history: int) -> None:
    if history < 1:
        raise ConfigError(f"{rule} needs history >= 1 versions, got {history}.")


def keep(history: WorkerRows, version: int, params: Vector, most: int) -> None:
    """Take up the current version, unless it is there, and drop the oldest beyond ``most``.

    Before each fold, not after each step: rows must be empty in the state that a rule begins with.
    """
    if str(version) in history:
        return
    history.put(str(version), params, version)
    while len(history) > most:
        history.remove(history.longest_silent()[0])


def kept(history: WorkerRows, version: int) -> Vector:
    """The model of a version; where it is older than all that are kept, the oldest of them.

    A rollback or a version without updates gives a model another number. It is then found as the
    newest one that is not newer than ``version``.
    """
    if str(version) in history:
        return history[str(version)]
    older = (number for number in map(int, history) if number <= version)
    oldest = history.longest_silent()[1]
    return history[str(max(older, default=oldest))]
