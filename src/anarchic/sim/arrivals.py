"""Who reports when, from the settings of a run."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from anarchic.core import registry
from anarchic.errors import ConfigError
from anarchic.participation.availability import Availability, read_availability
from anarchic.participation.continuous_time import ContinuousTime, Dropout
from anarchic.participation.coupling import Coupling
from anarchic.participation.fedscale import read_speeds
from anarchic.participation.idle import IDLE_TIMES
from anarchic.participation.make import make_process, timetable_of
from anarchic.participation.presence import Change, present
from anarchic.participation.sampler import Sampler
from anarchic.participation.synchronous import Synchronous
from anarchic.participation.timetable import Timetable
from anarchic.participation.work import (
    TIME_DISTRIBUTIONS,
    MeasuredSpeeds,
    SpeedClasses,
    StepPolicy,
    Work,
)

if TYPE_CHECKING:
    from anarchic.sim.settings import Settings

PARTICIPATIONS = registry.KINDS["participation"].built_in
SAMPLER_ONLY = ("max_staleness", "replace", "arrival_probs")
CLOCK_ONLY = (
    *("idle_s", "step_s", "time_distribution", "slow_share", "slow_factor"),
    *("lost_share", "timeout_s", "availability", "speeds", "join", "leave"),
)
COUPLED = tuple(each.name for each in fields(Coupling))  # with the server, in continuous time


def is_synchronous(rule: str) -> bool:
    """Whether a rule waits for all workers of a round."""
    return bool(getattr(registry.find("rules", rule), "synchronous", False))


def check_arrivals(settings: Settings) -> None:
    """Refuse settings of participation that cannot be."""
    coupling_of(settings)
    for name in ("join", "leave"):
        if (text := getattr(settings, name)) is not None:
            Change.parse(name, text)
    if settings.speeds is not None and settings.slow_share:
        raise ConfigError("Speeds are measured or drawn: leave out speeds or slow_share.")


def drawn(
    settings: Settings, workers: int, m: int, steps: StepPolicy, seeds: tuple[int, int]
) -> Timetable:
    """The timetable; ``seeds`` are for it and for who joins and leaves."""
    seed, until_s = seeds[0], settings.until_s
    # A time without a number of rounds: all that end by then.
    default = type(settings).rounds
    rounds = settings.rounds if until_s is None or settings.rounds != default else None
    if settings.participation == "sampler":
        late, again, chances = settings.max_staleness, settings.replace, settings.arrival_probs
        return Sampler(workers, m, steps, late, again, chances).timetable(seed, settings.rounds)
    work = _work(settings, steps)
    if settings.participation in PARTICIPATIONS:
        process: Any = IDLE_TIMES[settings.participation](settings.idle_s)
    else:
        given = {**vars(settings), "workers": workers, "m": m, "steps": steps, "work": work}
        chosen = [n for n in (*CLOCK_ONLY, *SAMPLER_ONLY) if given[n] != getattr(type(settings), n)]
        process = make_process(settings.participation, given, chosen)
    if hasattr(process, "pulls"):  # only an idle time
        if is_synchronous(settings.rule):
            waits = Synchronous(workers, m, work, settings.lost_share, settings.timeout_s)
            return waits.timetable(seed, rounds, until_s=until_s)
        windows = _windows(settings, workers, seeds[1])
        process = ContinuousTime(process, work, Dropout(settings.lost_share), windows)
    end = rounds, until_s
    coupling = coupling_of(settings)
    return timetable_of(process, workers=workers, m=m, end=end, seed=seed, coupling=coupling)


def coupling_of(settings: Settings) -> Coupling:
    """How arrivals depend on the server."""
    chosen: dict[str, Any] = {name: getattr(settings, name) for name in COUPLED}
    return Coupling(**chosen)


def _work(settings: Settings, steps: StepPolicy) -> Work:
    slow = settings.slow_share
    classes = {"fast": (1 - slow, 1.0), "slow": (slow, settings.slow_factor)}
    distribution = TIME_DISTRIBUTIONS[settings.time_distribution]()
    measured = settings.speeds and MeasuredSpeeds(read_speeds(settings.speeds))
    return Work(steps, settings.step_s, measured or SpeedClasses(classes), distribution)


def _windows(settings: Settings, workers: int, seed: int) -> Availability | None:
    """When workers are there and available."""
    file = settings.availability
    windows = read_availability(file, workers=workers) if file else None
    join, leave = (
        Change.parse(name, text) if (text := getattr(settings, name)) else None
        for name in ("join", "leave")
    )
    rng = np.random.default_rng(seed)
    return present(workers, rng, join=join, leave=leave, within=windows)
