"""What a server says about its run, beside the model, to whoever pulls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, final

from anarchic.core.reading import parse_json, printable
from anarchic.errors import ConfigError

Policy = Literal["average", "local", "refuse"]
POLICIES = ("average", "local", "refuse")
LITTLE = 0.2  # a smaller part of what a worker did looks like no training at all
PER_STEP_RULES = ("afa-cd", "afa-cs")  # they step by eta_L * G, others by K * eta_L * G


@final
@dataclass(frozen=True)
class RunFacts:
    """The policy on buffers, the buffers that travel, and what the rule makes of an update."""

    policy: Policy = "refuse"
    buffers: tuple[str, ...] = ()  # among the tensors of the model
    rule: str | None = None
    server_lr: float | None = None  # of a step along the mean; None for other steps

    @staticmethod
    def of(metadata: Mapping[str, str]) -> RunFacts:
        """From the metadata of a snapshot; a server that says nothing refuses buffers."""
        policy, names = _buffers(metadata.get("buffers"))
        plain = metadata.get("server_opt", "sgd") == "sgd"
        rate = _number(metadata.get("server_lr")) if plain else None
        return RunFacts(policy, names, metadata.get("rule"), rate)

    def shrinks(self, steps: int, *, per_step: bool) -> str | None:
        """A sentence if a server step would keep little of what this worker did."""
        if self.server_lr is None or self.rule is None:
            return None
        divided = steps if per_step and self.rule in PER_STEP_RULES else 1
        if (part := self.server_lr / divided) >= LITTLE:
            return None
        remedy = "push the whole displacement (per_step=False), or " if divided > 1 else ""
        return (
            f"The server's rule ({printable(self.rule, most=60)}, server_lr={self.server_lr:g}) "
            f"moves the model by {part:.2g} times what this worker did in {steps} steps: {remedy}"
            f"have the run started with --server-lr {divided}."
        )


def _buffers(text: str | None) -> tuple[Policy, tuple[str, ...]]:
    if text is None:
        return "refuse", ()
    try:
        found: Any = parse_json(text)
        policy, names = found["policy"], tuple(found.get("names", ()))
    except (ValueError, TypeError, KeyError, AttributeError):
        policy, names = None, ()
    if policy not in POLICIES or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"The server says of its buffers {printable(text, most=80)!r}; known are the policies "
            f"{', '.join(POLICIES)}. Install the server's version of anarchic."
        )
    return cast(Policy, policy), names


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
