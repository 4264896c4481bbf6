"""What happens in a run, and who wants to hear of it: the same in the simulator and live."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from anarchic.core import registry
from anarchic.core.types import Layout, Vector
from anarchic.errors import ConfigError, Stop

Numbers = Mapping[str, float | int | None]
EVENTS = ("begin", "version", "evaluation", "end")


@dataclass(frozen=True)
class RunInfo:
    """The run that begins, or goes on."""

    name: str
    settings: Mapping[str, Any]
    layout: Layout
    directory: Path | None = None  # where it is recorded; None live, and if it is not
    rounds: int | None = None  # None live: there is no last one
    metrics: Sequence[Numbers] = ()  # evaluations so far, of a run that goes on
    live: bool = False


@dataclass(frozen=True, eq=False)
class VersionInfo:
    """A version of the model, with what is known of it; parameters are read when asked for."""

    run: RunInfo
    version: int
    metrics: Numbers  # of its evaluation; of ``version`` what is known without one
    read: Callable[[], Vector] = field(repr=False)

    @cached_property
    def params(self) -> Vector:
        """A copy of the parameters as one vector."""
        return self.read()

    @property
    def tensors(self) -> dict[str, Any]:
        """The same by name, as NumPy arrays."""
        return self.run.layout.split(self.params)


class Callback:
    """Hears what happens in a run; override what you need.

    In a simulation, ``raise anarchic.Stop("why")`` ends the run, and any other exception is the
    caller's. Live, a callback that raises is logged and dropped, and the server goes on.
    """

    def begin(self, run: RunInfo) -> None:
        """Before the first round, or before the next one of a run that goes on."""

    def version(self, at: VersionInfo) -> None:
        """After every step; live, versions that come while the callback is busy are left out."""

    def evaluation(self, at: VersionInfo) -> None:
        """After every evaluation."""

    def end(self, summary: Mapping[str, Any]) -> None:
        """At the end of a simulated run, or when the server stops."""


def as_list(callbacks: object) -> list[Any]:
    """One callback, or several."""
    single = isinstance(callbacks, str | type) or not isinstance(callbacks, Iterable)
    heard = any(hasattr(callbacks, event) for event in EVENTS)
    return [callbacks] if single or heard else list(cast("Iterable[object]", callbacks))


def check_callbacks(callbacks: object) -> list[Any]:
    """Make those that are named; refuse what hears nothing, and classes in place of objects."""
    given = as_list(callbacks)
    found = [registry.find("callbacks", c)() if isinstance(c, str) else c for c in given]
    for each in found:
        if isinstance(each, type):
            raise ConfigError(f"{each.__name__} is a class: give an object, {each.__name__}(...).")
        if not any(hasattr(each, event) for event in EVENTS):
            raise ConfigError(f"A callback has some of {', '.join(EVENTS)}, got {each!r}.")
    return found


def tell(callbacks: Iterable[Any], event: str, about: object) -> Stop | None:
    """Tell all of them; returns the ``Stop`` that one of them raised, once all have heard."""
    stopped: Stop | None = None
    for callback in callbacks:
        try:
            getattr(callback, event, _ignore)(about)
        except Stop as stop:
            stopped = stopped or stop
    return stopped


def _ignore(about: object) -> None:
    """For a callback without the method."""
