"""From a seed to a list of events: who comes when, and what goes wrong.

Every event has a random stream of its own, by its number. So an event can be left out, to make a
failing history shorter, and the others stay what they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

HORIZON_S = 20.0
VISITS = 14
FAULTS = 5
WORKERS = ("ann", "ben", "cem", "dua")

# Each seed uses about half of the kinds: what is always there hides what is rare.
KINDS = (
    "kill",
    "power_cut",
    "kill_in_write",
    "power_cut_in_write",
    "stop",
    "pause",
    "full_disk",
    "failing_disk",
    "slow_disk",
    "full_log",
    "blocked_log",
    "clock_jump",
    "token_add",
    "token_revoke",
    "restore",
    "second_server",
    "hostile",
    "bad_network",
)
STEER = "steer"  # an operator gives a command: beside the faults, in one seed out of three
HOSTILE = ("junk", "nan", "large", "overflow", "conflict", "invented", "old_bytes")
SECOND = ("same", "symlink", "hard_link", "no_lock_file")


@dataclass(frozen=True)
class Event:
    """Something that happens at a time."""

    number: int
    at: float
    kind: str
    args: tuple[tuple[str, Any], ...] = ()

    def __getitem__(self, name: str) -> Any:
        return dict(self.args)[name]

    def __str__(self) -> str:
        told = " ".join(f"{name}={value}" for name, value in self.args)
        return f"{self.kind} {told}".strip()


@dataclass(frozen=True)
class Plan:
    """Everything that a seed decides before the run begins."""

    seed: int
    rule: str
    m: int
    guard: float  # 0: none, and the server's rate is so large that a step may overflow
    step_after_s: float | None
    keep_payloads: bool
    switching: float
    events: tuple[Event, ...]
    run_options: Mapping[str, Any] = field(default_factory=dict)  # of ``RunSettings``
    limits: Mapping[str, Any] = field(default_factory=dict)

    def rng(self, what: object) -> Random:
        return Random(f"{self.seed} {what}")


def plan_of(seed: int, only: Sequence[str] = ()) -> Plan:
    """The plan of a seed; with ``only``, nothing else goes wrong."""
    rng = Random(f"{seed} plan")
    kinds = list(only) or [kind for kind in KINDS if rng.random() < 0.5] or ["kill"]
    drawn: list[tuple[float, str, dict[str, Any]]] = [
        (rng.uniform(0, HORIZON_S), "visit", {"who": rng.choice(WORKERS)}) for _ in range(VISITS)
    ]
    for _ in range(FAULTS):
        kind = rng.choice(kinds)
        drawn.append((rng.uniform(1, HORIZON_S - 4), kind, args_of(kind, rng)))
    drawn.sort(key=lambda event: event[0])
    events = [
        Event(number, round(at, 3), kind, tuple(args.items()))
        for number, (at, kind, args) in enumerate(drawn)
    ]
    if not only:  # numbered after the others, which stay what they were
        events = sorted([*events, *_commands(seed, len(events))], key=lambda event: event.at)
    return Plan(
        seed=seed,
        rule=rng.choice(["afa-cd", "afa-cs"]),
        m=rng.choice([1, 2, 2, 3]),
        guard=rng.choice([0.0, 10.0]),
        step_after_s=rng.choice([None, None, None, 4.0]),
        keep_payloads=rng.random() < 0.8,
        switching=rng.choice([0.0, 0.05, 0.3]),
        events=tuple(events),
    )


def _commands(seed: int, first: int) -> list[Event]:
    rng = Random(f"{seed} commands")
    if rng.random() > 1 / 3:
        return []
    return [
        Event(first + each, round(rng.uniform(2, HORIZON_S - 2), 3), STEER, (*_steer(rng).items(),))
        for each in range(rng.randrange(1, 4))
    ]


def _steer(rng: Random) -> dict[str, Any]:
    """A command. Versions are given as a share of the newest, which nobody knows yet."""
    part = round(rng.random(), 2)
    return rng.choice(
        [
            {"what": "set", "server_lr": rng.choice([0.5, 2.0])},
            {"what": "rollback", "part": part, "without": None},
            {"what": "rollback", "part": part, "without": rng.choice(WORKERS)},
            {"what": "rollback", "part": None, "without": rng.choice(WORKERS)},
        ]
    )


def args_of(kind: str, rng: Random) -> dict[str, Any]:
    span = {"for_s": round(rng.uniform(2, 12), 1)}
    back = {"back_after_s": round(rng.uniform(0, 4), 1)}
    match kind:
        case "kill" | "power_cut" | "stop":
            return back
        case "kill_in_write" | "power_cut_in_write":
            return {"after": rng.randrange(60), **back}
        case "pause" | "full_disk" | "full_log" | "blocked_log" | "bad_network":
            return span
        case "restore":  # sometimes by somebody who forgets to stop the server
            return {"live": rng.random() < 0.3, **span}
        case "failing_disk":
            return {"chance": rng.choice([0.02, 0.2, 1.0]), **span}
        case "slow_disk":
            return {"sync_s": rng.choice([0.02, 0.1, 0.4]), **span}
        case "clock_jump":
            return {"by_s": rng.choice([-86400.0, -60.0, 3600.0, 1e7])}
        case "token_add" | "token_revoke":
            return {"who": rng.choice(WORKERS)}
        case "second_server":
            return {"through": rng.choice(SECOND), **span}
        case "steer":
            return _steer(rng)
        case "hostile":
            return {"what": rng.choice(HOSTILE), "who": rng.choice(WORKERS)}
    return {}
